-- What a shard leader reads and writes: mainspring/scheduler. Transaction ids travel as bigint, snapshots as text.

-- name: database_time
SELECT clock_timestamp();

-- A gap that an earlier leader found, and whose end the mark has not passed, is kept as it is.
-- name: take_shards
UPDATE shards
SET epoch = epoch + 1,
    leader = $2,
    gap_to = CASE WHEN gap_to > fired_through THEN gap_to ELSE date_trunc('second', clock_timestamp()) END
WHERE shard = ANY ($1::smallint[])
RETURNING shard, epoch, fired_through, gap_to, seen::text AS seen, seen_at, timeline,
          left(pg_walfile_name(pg_current_wal_lsn()), 8) AS current_timeline;

-- name: confirm_terms
SELECT held.shard
FROM unnest($1::smallint[], $2::bigint[]) AS held (shard, epoch)
JOIN shards USING (shard, epoch)
WHERE shards.leader = $3;

-- The fence: a shard that is not among the answers has another leader. Its lock is held until the commit.
-- name: move_marks
UPDATE shards
SET fired_through = greatest(fired_through, moved.through),
    seen = $5::text::pg_snapshot,
    seen_at = $6,
    timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8),
    gap_to = CASE WHEN gap_to > moved.through THEN gap_to END
FROM unnest($1::smallint[], $2::bigint[], $3::timestamptz[]) AS moved (shard, epoch, through)
WHERE shards.shard = moved.shard AND shards.epoch = moved.epoch AND shards.leader = $4
RETURNING shards.shard;

-- name: add_to_ledger
INSERT INTO ledger (shard, second, published)
SELECT * FROM unnest($1::smallint[], $2::timestamptz[], $3::integer[])
ON CONFLICT (shard, second) DO UPDATE SET published = ledger.published + excluded.published;

-- name: add_missed
INSERT INTO missed (cadence_id, gap_from, gap_to, skipped)
SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[], $4::bigint[])
ON CONFLICT (cadence_id, gap_to) DO UPDATE
SET skipped = missed.skipped + excluded.skipped, gap_from = least(missed.gap_from, excluded.gap_from);

-- A run that still has a timer keeps that one, moved: its new `changed` saves it from the deletion of the old.
-- name: defer_runs
INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, retries, losses, cause)
SELECT shard, now() + $8 * interval '1 second', job_id, scheduled_at, attempt, retries, losses, 'deferred'
FROM unnest($1::smallint[], $2::bigint[], $3::timestamptz[], $4::smallint[], $5::smallint[], $6::smallint[])
     AS run (shard, job_id, scheduled_at, attempt, retries, losses)
WHERE shard = ANY ($7::smallint[])
ON CONFLICT (job_id, scheduled_at, attempt) DO UPDATE SET due_at = excluded.due_at;

-- name: add_dead_letters
INSERT INTO dead_letters (tenant_id, job_id, scheduled_at, attempt, pool, handler, reason, error, fingerprint, body)
SELECT tenant_id, job_id, scheduled_at, attempt, pool, handler, 'too_large', error, 'too_large:' || handler, body
FROM unnest($1::integer[], $2::bigint[], $3::timestamptz[], $4::smallint[], $5::text[], $6::text[], $7::text[],
            $8::bytea[])
     AS letter (tenant_id, job_id, scheduled_at, attempt, pool, handler, error, body)
ON CONFLICT DO NOTHING;

-- By id and `changed`, never by range: a timer that its owner re-timed meanwhile stays. Locked in order of id: who
-- deletes a job locks its timers too.
-- name: delete_timers
WITH fired AS (
    SELECT timers.id
    FROM unnest($1::bigint[], $2::bigint[]) AS wanted (id, changed)
    JOIN timers ON timers.id = wanted.id AND timers.changed = wanted.changed::text::xid8
    ORDER BY timers.id
    FOR UPDATE OF timers
)
DELETE FROM timers USING fired WHERE timers.id = fired.id;

-- Rows that a restored dump or another timeline left with ids from the future: no feed would ever show them.
-- name: changed_in_the_future
SELECT EXISTS (SELECT FROM jobs WHERE changed >= pg_snapshot_xmax(pg_current_snapshot()))
    OR EXISTS (SELECT FROM timers WHERE changed >= pg_snapshot_xmax(pg_current_snapshot()));

-- name: rebase_jobs
WITH batch AS (
    SELECT id FROM jobs WHERE changed >= pg_snapshot_xmax(pg_current_snapshot()) LIMIT $1 FOR UPDATE
)
UPDATE jobs SET changed = pg_current_xact_id() FROM batch WHERE jobs.id = batch.id;

-- name: rebase_timers
WITH batch AS (
    SELECT id FROM timers WHERE changed >= pg_snapshot_xmax(pg_current_snapshot()) LIMIT $1 FOR UPDATE
)
UPDATE timers SET changed = pg_current_xact_id() FROM batch WHERE timers.id = batch.id;

-- Every term ends with it. `seen` belongs to no timeline any more, so the next leaders look at all that is recent.
-- name: rebase_shards
UPDATE shards SET epoch = epoch + 1, leader = NULL, timeline = '00000000';

-- name: feed_position
SELECT pg_current_snapshot()::text AS snapshot,
       left(pg_walfile_name(pg_current_wal_lsn()), 8) AS timeline,
       now() AS at;

-- Two index scans, whatever else is going on in the database: `changed >= xmin` would read again what was seen,
-- and OR in place of UNION ALL would read everything.
-- name: changed_jobs
SELECT id, shard, tenant_id, cadence_id, status, changed::text::bigint AS changed, version, valid_from, updated_at,
       starts_at, ends_at, jitter_seconds, pool, priority, missed_window, grace_seconds, max_missed, body
FROM (
    SELECT * FROM jobs WHERE changed >= pg_snapshot_xmax($1::text::pg_snapshot)
    UNION ALL
    SELECT * FROM jobs WHERE changed = ANY (ARRAY(SELECT pg_snapshot_xip($1::text::pg_snapshot)))
) AS job
WHERE shard = ANY ($2::smallint[]);

-- name: recent_jobs
SELECT id, shard, tenant_id, cadence_id, status, changed::text::bigint AS changed, version, valid_from, updated_at,
       starts_at, ends_at, jitter_seconds, pool, priority, missed_window, grace_seconds, max_missed, body
FROM jobs
WHERE shard = $1 AND valid_from > $2 AND status = 'active';

-- name: changed_timers
SELECT timer.id, timer.changed::text::bigint AS changed, timer.shard, timer.due_at, timer.job_id,
       timer.scheduled_at, timer.attempt, timer.retries, timer.losses,
       job.status, job.tenant_id, job.pool, job.priority, job.grace_seconds, job.body
FROM (
    SELECT * FROM timers WHERE changed >= pg_snapshot_xmax($1::text::pg_snapshot)
    UNION ALL
    SELECT * FROM timers WHERE changed = ANY (ARRAY(SELECT pg_snapshot_xip($1::text::pg_snapshot)))
) AS timer
LEFT JOIN jobs AS job ON job.id = timer.job_id
WHERE timer.shard = ANY ($2::smallint[]);

-- name: due_timers
SELECT timer.id, timer.changed::text::bigint AS changed, timer.shard, timer.due_at, timer.job_id,
       timer.scheduled_at, timer.attempt, timer.retries, timer.losses,
       job.status, job.tenant_id, job.pool, job.priority, job.grace_seconds, job.body
FROM timers AS timer
LEFT JOIN jobs AS job ON job.id = timer.job_id
WHERE timer.shard = ANY ($1::smallint[]) AND timer.due_at > $2 AND timer.due_at <= $3;

-- name: timers_of_jobs
SELECT timer.id, timer.changed::text::bigint AS changed, timer.shard, timer.due_at, timer.job_id,
       timer.scheduled_at, timer.attempt, timer.retries, timer.losses,
       job.status, job.tenant_id, job.pool, job.priority, job.grace_seconds, job.body
FROM timers AS timer
LEFT JOIN jobs AS job ON job.id = timer.job_id
WHERE timer.job_id = ANY ($1::bigint[]) AND timer.shard = ANY ($2::smallint[]);

-- With a tzdata version ($3), cadences whose bound was made with another one are due for a look too.
-- name: due_cadences
SELECT id, shard, kind, expression, timezone, dst_gap, dst_repeat, phase,
       nullif(next_at, '-infinity') AS next_at, max_jitter, tzdata
FROM cadences
WHERE shard = ANY ($1::smallint[])
  AND (next_at <= $2 OR ($3::text IS NOT NULL AND tzdata IS DISTINCT FROM $3));

-- name: cadences_by_id
SELECT id, shard, kind, expression, timezone, dst_gap, dst_repeat, phase,
       nullif(next_at, '-infinity') AS next_at, max_jitter, tzdata
FROM cadences
WHERE id = ANY ($1::bigint[]);

-- name: cadence_members
SELECT id, shard, tenant_id, cadence_id, status, changed::text::bigint AS changed, version, valid_from, updated_at,
       starts_at, ends_at, jitter_seconds, pool, priority, missed_window, grace_seconds, max_missed, body
FROM jobs
WHERE cadence_id = ANY ($1::bigint[]) AND status = 'active';

-- A lower bound moves only past occurrences that lie wholly behind the mark, the longest jitter included: `passed`
-- is the last occurrence before the new bound. Locked rows are left for the next time.
-- name: move_bounds
WITH moved AS (
    SELECT cadence.id, bound.next_at
    FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS bound (id, next_at, passed)
    JOIN cadences AS cadence USING (id)
    JOIN shards USING (shard)
    WHERE (cadence.next_at < bound.next_at OR cadence.tzdata IS DISTINCT FROM $4)
      AND bound.passed + cadence.max_jitter * interval '1 second' <= shards.fired_through
    FOR UPDATE OF cadence SKIP LOCKED
)
UPDATE cadences SET next_at = moved.next_at, tzdata = $4
FROM moved WHERE cadences.id = moved.id;

-- name: jobs_to_resume
SELECT id, tenant_id FROM jobs WHERE resume_at <= now() ORDER BY resume_at LIMIT $1;

-- name: list_shards
SELECT shard, epoch, leader, fired_through, gap_to, seen_at, clock_timestamp() AS now,
       (SELECT count(*) FROM cadences WHERE cadences.shard = shards.shard) AS cadences,
       (SELECT count(*) FROM timers WHERE timers.shard = shards.shard) AS timers,
       (SELECT coalesce(sum(published), 0) FROM ledger
        WHERE ledger.shard = shards.shard AND second > clock_timestamp() - interval '1 minute') AS published
FROM shards ORDER BY shard;
