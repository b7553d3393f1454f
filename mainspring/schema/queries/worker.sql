-- What a worker reads and writes: mainspring/worker. Transaction ids travel as bigint, snapshots as text.

-- name: register_worker
INSERT INTO workers (id, pool, lanes, handlers, concurrency) VALUES ($1, $2, $3, $4, $5);

-- name: renew_heartbeat
UPDATE workers SET heartbeat = heartbeat + 1, heartbeat_at = now() WHERE id = $1 AND dead_at IS NULL RETURNING heartbeat;

-- name: stop_worker
UPDATE workers SET stopped_at = now() WHERE id = $1 AND dead_at IS NULL;

-- A job's first version is nobody's recall: what was published before it does not exist.
-- name: recalls
SELECT id, status, version
FROM (
    SELECT * FROM jobs WHERE changed >= pg_snapshot_xmax($1::text::pg_snapshot)
    UNION ALL
    SELECT * FROM jobs WHERE changed = ANY (ARRAY(SELECT pg_snapshot_xip($1::text::pg_snapshot)))
) AS job
WHERE version > 1;

-- name: jobs_as_they_are
SELECT id, status, version, body FROM jobs WHERE id = ANY ($1::bigint[]);

-- Held until the commit: a resume waits for it, and finds the run that was recalled.
-- name: hold_stopped_jobs
SELECT id FROM jobs WHERE id = ANY ($1::bigint[]) AND status IN ('paused', 'deleted') ORDER BY id FOR SHARE;

-- name: cancellations_of
SELECT job_id, scheduled_at, attempt, reason FROM cancellations WHERE job_id = ANY ($1::bigint[]);

-- name: cancellations_since
SELECT job_id, scheduled_at, attempt, reason FROM cancellations
WHERE requested_at > clock_timestamp() - $1 * interval '1 second';

-- name: effects_of
SELECT effect.job_id, effect.scheduled_at
FROM unnest($1::bigint[], $2::timestamptz[]) AS run (job_id, scheduled_at)
JOIN effects AS effect USING (job_id, scheduled_at);

-- name: defer_unknown
INSERT INTO deferrals (job_id, scheduled_at, attempt)
SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[])
ON CONFLICT (job_id, scheduled_at, attempt) DO UPDATE SET times = deferrals.times + 1
RETURNING job_id, scheduled_at, attempt, times, extract(epoch FROM now() - first_at)::float8 AS waited;

-- name: forget_deferrals
DELETE FROM deferrals USING unnest($1::bigint[], $2::timestamptz[], $3::smallint[]) AS run (job_id, scheduled_at, attempt)
WHERE (deferrals.job_id, deferrals.scheduled_at, deferrals.attempt) = (run.job_id, run.scheduled_at, run.attempt);

-- name: lock_overlaps
SELECT job_id FROM "overlaps" WHERE job_id = ANY ($1::bigint[]) ORDER BY job_id FOR UPDATE;

-- Asked after the locks are held: a wait for one would leave the claims as they were before it.
-- name: overlaps_under_way
SELECT slot.job_id, slot.claim_id, slot.position, slot.scheduled_at, slot.attempt, slot.queued_at, slot.queued_attempt,
       coalesce(claim.finished_at IS NULL AND claim.reaped_at IS NULL
                AND get_byte(claim.outcomes, slot.position) = 0, false) AS busy
FROM "overlaps" AS slot
LEFT JOIN claims AS claim ON claim.id = slot.claim_id
WHERE slot.job_id = ANY ($1::bigint[]);

-- name: runs_there
SELECT job_id, scheduled_at, attempt
FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[]) AS run (job_id, scheduled_at, attempt)
WHERE (SELECT true FROM runs
       WHERE runs.job_id = run.job_id AND runs.scheduled_at = run.scheduled_at AND runs.attempt = run.attempt);

-- A slot that is new, or whose run is over; one that somebody else took in this very moment is not among the answers.
-- name: take_overlaps
INSERT INTO "overlaps" (job_id, claim_id, position, scheduled_at, attempt)
SELECT job_id, $6, position, scheduled_at, attempt
FROM unnest($1::bigint[], $2::integer[], $3::timestamptz[], $4::smallint[], $5::bigint[])
     AS wanted (job_id, position, scheduled_at, attempt, before)
ORDER BY job_id
ON CONFLICT (job_id) DO UPDATE
SET claim_id = excluded.claim_id, position = excluded.position, scheduled_at = excluded.scheduled_at,
    attempt = excluded.attempt,
    queued_at = CASE WHEN ("overlaps".queued_at, "overlaps".queued_attempt) = (excluded.scheduled_at, excluded.attempt)
                     THEN NULL ELSE "overlaps".queued_at END,
    queued_attempt = CASE WHEN ("overlaps".queued_at, "overlaps".queued_attempt) = (excluded.scheduled_at, excluded.attempt)
                     THEN NULL ELSE "overlaps".queued_attempt END
WHERE "overlaps".claim_id = ANY ($5::bigint[])
RETURNING job_id;

-- name: queue_overlaps
UPDATE "overlaps" SET queued_at = wanted.scheduled_at, queued_attempt = wanted.attempt
FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[]) AS wanted (job_id, scheduled_at, attempt)
WHERE "overlaps".job_id = wanted.job_id;

-- name: cancel_overlapped
INSERT INTO cancellations (job_id, scheduled_at, attempt, reason)
SELECT job_id, scheduled_at, attempt, 'a newer run of the job is due' FROM "overlaps" WHERE job_id = ANY ($1::bigint[])
ON CONFLICT DO NOTHING;

-- A conflict is no error: the claim of this id is ours, and its commit was not heard of. A worker that was declared
-- dead gets none.
-- name: insert_claim
INSERT INTO claims (id, worker_id, outcomes, tally_shards, tally_seconds, tally_counts, finished_at)
SELECT $1, $2, $3, $4, $5, $6, CASE WHEN $7 THEN now() END
WHERE EXISTS (SELECT FROM workers WHERE id = $2 AND dead_at IS NULL)
ON CONFLICT (id) DO NOTHING
RETURNING claimed_at;

-- name: claim_as_it_stands
SELECT claimed_at, outcomes FROM claims WHERE id = $1 AND worker_id = $2;

-- name: runs_of_claim
SELECT job_id, scheduled_at, attempt, position FROM runs WHERE claim_id = $1;

-- name: make_contenders
CREATE TEMPORARY TABLE contenders (LIKE runs) ON COMMIT DROP;

-- name: win_runs
INSERT INTO runs (job_id, scheduled_at, claim_id, position, attempt)
SELECT job_id, scheduled_at, claim_id, position, attempt FROM contenders
ORDER BY job_id, scheduled_at, attempt
ON CONFLICT DO NOTHING
RETURNING position;

-- One UPDATE per claim and flush: a claim that was reaped is not among the answers.
-- name: report_outcomes
UPDATE claims
SET outcomes = $2, started_ms = $3, ended_ms = $4, finished_at = CASE WHEN $5 THEN now() END
WHERE id = $1 AND reaped_at IS NULL
RETURNING id;

-- name: add_failures
INSERT INTO failures (job_id, scheduled_at, attempt, tenant_id, status, error, worker_id, started_at, ended_at)
SELECT job_id, scheduled_at, attempt, tenant_id, status, error, $9, started_at, ended_at
FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[], $4::integer[], $5::text[], $6::text[],
            $7::timestamptz[], $8::timestamptz[])
     AS failure (job_id, scheduled_at, attempt, tenant_id, status, error, started_at, ended_at)
ON CONFLICT DO NOTHING;

-- name: add_results
INSERT INTO results (job_id, scheduled_at, attempt, value)
SELECT job_id, scheduled_at, attempt, value::json
FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[], $4::text[]) AS result (job_id, scheduled_at, attempt, value)
ON CONFLICT DO NOTHING;

-- A line is written once; the newest progress takes the place of the one before.
-- name: add_run_logs
INSERT INTO run_logs AS known (job_id, scheduled_at, attempt, line, at, level, message)
SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[], $4::integer[], $5::timestamptz[], $6::text[],
                     $7::text[])
ON CONFLICT (job_id, scheduled_at, attempt, line) DO UPDATE SET at = excluded.at, message = excluded.message
WHERE known.level = 'progress' AND excluded.level = 'progress' AND excluded.at >= known.at;

-- The same of runs under way; of a claim that was reaped nothing is written.
-- name: add_live_lines
INSERT INTO run_logs AS known (job_id, scheduled_at, attempt, line, at, level, message)
SELECT job_id, scheduled_at, attempt, line, at, level, message
FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::smallint[], $5::integer[], $6::timestamptz[], $7::text[],
            $8::text[])
     AS news (claim_id, job_id, scheduled_at, attempt, line, at, level, message)
JOIN claims ON claims.id = news.claim_id AND claims.reaped_at IS NULL
ON CONFLICT (job_id, scheduled_at, attempt, line) DO UPDATE SET at = excluded.at, message = excluded.message
WHERE known.level = 'progress' AND excluded.level = 'progress' AND excluded.at >= known.at;

-- The next attempt, or the same one later. Not for a run that exists: then the message was a copy of one that had
-- been put off before. A timer that stands is moved, and its new `changed` saves it from the deletion of the old.
-- name: add_timers
INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, retries, losses, cause)
SELECT shard, due_at, job_id, scheduled_at, attempt, retries, losses, cause
FROM unnest($1::smallint[], $2::timestamptz[], $3::bigint[], $4::timestamptz[], $5::smallint[], $6::smallint[],
            $7::smallint[], $8::text[])
     AS timer (shard, due_at, job_id, scheduled_at, attempt, retries, losses, cause)
WHERE NOT EXISTS (
    SELECT FROM runs
    WHERE runs.job_id = timer.job_id AND runs.scheduled_at = timer.scheduled_at AND runs.attempt = timer.attempt
)
ORDER BY job_id, scheduled_at, attempt
ON CONFLICT (job_id, scheduled_at, attempt) DO UPDATE SET due_at = excluded.due_at;

-- name: tenant_limits
SELECT id, maximum_running FROM tenants WHERE maximum_running IS NOT NULL;

-- Positions that were not won are void, and not counted.
-- name: amend_claim
UPDATE claims
SET outcomes = $2, tally_shards = $3, tally_seconds = $4, tally_counts = $5, finished_at = CASE WHEN $6 THEN now() END
WHERE id = $1;
