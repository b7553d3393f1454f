-- What a change to a job means: mainspring/registry. Every statement about jobs is scoped by the tenant.

-- Which of these cadences exist; `position` counts from 1.
-- name: find_cadences
SELECT wanted.position, cadence.id, cadence.max_jitter
FROM unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::integer[])
     WITH ORDINALITY AS wanted (shard, kind, expression, timezone, dst_gap, dst_repeat, phase, position)
JOIN cadences AS cadence USING (shard, kind, expression, timezone, dst_gap, dst_repeat, phase);

-- Not DO UPDATE: an open one would block the leader's update of next_at. In order, so that two of them do not
-- wait for each other.
-- name: insert_cadences
INSERT INTO cadences (shard, kind, expression, timezone, dst_gap, dst_repeat, phase)
SELECT * FROM unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::integer[])
ORDER BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT DO NOTHING;

-- Locked first: whoever waits here looks again at what the other has left.
-- name: raise_max_jitter
WITH short AS (
    SELECT cadence.id, wanted.jitter
    FROM unnest($1::bigint[], $2::integer[]) AS wanted (id, jitter)
    JOIN cadences AS cadence USING (id)
    WHERE cadence.max_jitter < wanted.jitter
    ORDER BY cadence.id
    FOR NO KEY UPDATE OF cadence
)
UPDATE cadences AS cadence SET max_jitter = short.jitter FROM short WHERE cadence.id = short.id;

-- By id ($2) or else by name ($3). Its own statement, before the row is read: a join in a statement that had to
-- wait for the lock would show the new job beside the old cadence.
-- name: lock_job
SELECT id FROM jobs
WHERE id = coalesce($2::bigint,
                    (SELECT id FROM jobs WHERE tenant_id = $1 AND name = $3::text AND status <> 'deleted'))
  AND tenant_id = $1 AND status <> 'deleted'
FOR NO KEY UPDATE;

-- name: read_job
SELECT
    job.id, job.tenant_id, job.shard, job.name, job.status, job.version, job.kind, job.schedule, job.timezone,
    job.cadence_id, job.run_at, job.valid_from, job.starts_at, job.ends_at, job.jitter_seconds, job.handler,
    job.pool, job.priority, job.missed_window, job.max_missed, job.grace_seconds, job.overlap, job.max_retries,
    job.retry_backoff, job.timeout_seconds, job.idempotency_key_template, job.on_failure, job.labels, job.body,
    job.paused_reason, job.resume_at, job.closed_at, job.created_at, job.updated_at,
    cadence.expression, cadence.timezone AS cadence_timezone, cadence.dst_gap, cadence.dst_repeat, cadence.phase,
    ARRAY(SELECT parent_id FROM dependencies WHERE job_id = job.id ORDER BY parent_id) AS parents,
    (SELECT min(due_at) FROM timers WHERE job_id = job.id) AS timer_due_at,
    clock_timestamp() AS read_at
FROM jobs AS job
LEFT JOIN cadences AS cadence ON cadence.id = job.cadence_id
WHERE job.id = coalesce($2::bigint,
                        (SELECT id FROM jobs WHERE tenant_id = $1 AND name = $3::text AND status <> 'deleted'))
  AND job.tenant_id = $1 AND job.status <> 'deleted';

-- The parameters are mainspring.registry.rows.COLUMNS, in that order; so are those of the next one.
-- name: insert_job
INSERT INTO jobs (
    id, tenant_id, shard, name, kind, schedule, timezone, cadence_id, run_at, starts_at, ends_at, jitter_seconds,
    handler, pool, priority, missed_window, max_missed, grace_seconds, overlap, max_retries, retry_backoff,
    timeout_seconds, idempotency_key_template, on_failure, labels, body
) VALUES (
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25, $26
);

-- $27: the schedule is another one. Only then does the job own nothing that came before, and a one-off that has
-- run is to run again. statement_timestamp, not now: the transaction may have waited long for the row.
-- name: update_job
UPDATE jobs SET
    name = $4, kind = $5, schedule = $6, timezone = $7, cadence_id = $8, run_at = $9, starts_at = $10,
    ends_at = $11, jitter_seconds = $12, handler = $13, pool = $14, priority = $15, missed_window = $16,
    max_missed = $17, grace_seconds = $18, overlap = $19, max_retries = $20, retry_backoff = $21,
    timeout_seconds = $22, idempotency_key_template = $23, on_failure = $24, labels = $25, body = $26,
    version = version + 1,
    updated_at = statement_timestamp(),
    valid_from = CASE WHEN $27::boolean THEN statement_timestamp() ELSE valid_from END,
    status = CASE WHEN $27 AND status = 'completed' THEN 'active' ELSE status END,
    closed_at = CASE WHEN $27 THEN NULL ELSE closed_at END
WHERE id = $1 AND tenant_id = $2 AND shard = $3;

-- name: pause_job
UPDATE jobs SET
    status = 'paused', paused_reason = $4, resume_at = $5, body = $3, version = version + 1,
    updated_at = statement_timestamp()
WHERE tenant_id = $1 AND id = $2;

-- name: resume_job
UPDATE jobs SET
    status = 'active', paused_reason = NULL, resume_at = NULL, body = $3, version = version + 1,
    updated_at = statement_timestamp(), valid_from = statement_timestamp()
WHERE tenant_id = $1 AND id = $2;

-- The bytes stay: nobody sends a deleted job, and one that can no longer be read can still be deleted.
-- name: delete_job
UPDATE jobs SET
    status = 'deleted', paused_reason = NULL, resume_at = NULL, closed_at = statement_timestamp(),
    version = version + 1, updated_at = statement_timestamp()
WHERE tenant_id = $1 AND id = $2 AND status <> 'deleted'
RETURNING name, handler, schedule, timezone, pool, version;

-- name: existing_names
SELECT name FROM jobs WHERE tenant_id = $1 AND name = ANY($2::text[]) AND status <> 'deleted' ORDER BY name;

-- An instant that had runs before goes on with the attempt after the last.
-- name: insert_one_off
INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, cause)
SELECT $1::smallint, $2::timestamptz, $3::bigint, $4::timestamptz,
       1 + coalesce((SELECT max(attempt) FROM runs WHERE job_id = $3 AND scheduled_at = $4), 0), 'one_off'
ON CONFLICT (job_id, scheduled_at, attempt) DO UPDATE SET due_at = excluded.due_at, cause = excluded.cause;

-- Attempts at the instant that the job no longer has; what somebody asked for by hand stays.
-- name: delete_one_off
DELETE FROM timers WHERE id IN (
    SELECT id FROM timers
    WHERE job_id = $1 AND scheduled_at = $2 AND cause IN ('one_off', 'retry', 'deferred')
    ORDER BY id FOR UPDATE
);

-- name: move_one_off
UPDATE timers SET due_at = $3 WHERE job_id = $1 AND scheduled_at = $2 AND cause = 'one_off';

-- name: delete_timers_of_job
DELETE FROM timers WHERE id IN (SELECT id FROM timers WHERE job_id = $1 ORDER BY id FOR UPDATE);

-- Time spent paused is not missed: what came due meanwhile is due now. The update also brings it to the feed.
-- name: refresh_timers
UPDATE timers SET due_at = statement_timestamp() WHERE id IN (
    SELECT id FROM timers WHERE job_id = $1 AND due_at < statement_timestamp() ORDER BY id FOR UPDATE
);

-- The next attempt at an instant whose last run was born recalled, unless it has its timer.
-- name: repeat_recalled
INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, retries, losses, cause)
SELECT $1::smallint, statement_timestamp(), $2::bigint, $3::timestamptz, past.last + 1, past.failed, past.lost, 'one_off'
FROM (
    SELECT max(attempt) AS last,
           (array_agg(status ORDER BY attempt DESC))[1] AS status,
           count(*) FILTER (WHERE status = 'failed') AS failed,
           count(*) FILTER (WHERE status = 'lost') AS lost,
           bool_or(status IN ('running', 'succeeded')) AS done
    FROM run_history WHERE job_id = $2 AND scheduled_at = $3
) AS past
WHERE past.status = 'recalled' AND NOT past.done
ON CONFLICT DO NOTHING;

-- FOR SHARE: a delete waits, and then removes the timer with the others.
-- name: job_to_trigger
SELECT shard, status, paused_reason, handler FROM jobs
WHERE tenant_id = $1 AND id = $2 AND status <> 'deleted' FOR SHARE;

-- Never a whole second, so that it meets no cron occurrence. Nothing comes back if a trigger has this microsecond.
-- name: insert_trigger
INSERT INTO timers (shard, due_at, job_id, scheduled_at, cause)
SELECT $1::smallint, instant, $2::bigint, instant, 'trigger'
FROM (SELECT CASE WHEN date_trunc('second', t) = t THEN t + interval '1 microsecond' ELSE t END AS instant
      FROM clock_timestamp() AS t) AS clock
ON CONFLICT DO NOTHING
RETURNING scheduled_at;

-- Changes of parents come one at a time per tenant: two at once could each find no cycle and make one together.
-- name: lock_dependencies
SELECT pg_advisory_xact_lock($1, $2);

-- FOR SHARE: a parent found here is not deleted before its dependent is there to be found by the delete.
-- name: find_parents
SELECT id, name FROM jobs
WHERE tenant_id = $1 AND (id = ANY($2::bigint[]) OR name = ANY($3::text[])) AND status <> 'deleted'
ORDER BY id FOR SHARE;

-- Everything the given jobs wait for, directly or not.
-- name: ancestor_edges
WITH RECURSIVE ancestor (id) AS (
    SELECT unnest($1::bigint[])
    UNION
    SELECT dependency.parent_id FROM dependencies AS dependency JOIN ancestor ON dependency.job_id = ancestor.id
)
SELECT dependency.job_id, dependency.parent_id
FROM dependencies AS dependency JOIN ancestor ON dependency.job_id = ancestor.id;

-- name: job_names
SELECT id, name FROM jobs WHERE tenant_id = $1 AND id = ANY($2::bigint[]);

-- name: insert_dependencies
INSERT INTO dependencies (job_id, parent_id) SELECT $1::bigint, unnest($2::bigint[]) ON CONFLICT DO NOTHING;

-- Its own parents, but for those to keep.
-- name: delete_parents
DELETE FROM dependencies WHERE job_id = $1 AND parent_id <> ALL($2::bigint[]);

-- In order, because the deletes of a parent and of its dependents meet in these rows.
-- name: delete_dependencies
DELETE FROM dependencies WHERE (job_id, parent_id) IN (
    SELECT job_id, parent_id FROM dependencies WHERE job_id = $1 OR parent_id = $1
    ORDER BY job_id, parent_id FOR UPDATE
);
