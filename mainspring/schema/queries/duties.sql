-- What the reaper, the janitor and the relay of dead letters read and write: mainspring/scheduler/duties.

-- The commit of the message proves that Postgres takes writes: where it does not, nobody can renew a heartbeat.
-- name: living_workers
SELECT id, heartbeat, (SELECT pg_logical_emit_message(true, 'mainspring', 'look')) AS written
FROM workers WHERE dead_at IS NULL AND stopped_at IS NULL;

-- Dead only if the heartbeat is still the one that was watched.
-- name: declare_dead
UPDATE workers SET dead_at = now()
WHERE id = $1 AND heartbeat = $2 AND dead_at IS NULL AND stopped_at IS NULL
RETURNING id;

-- Ids contain no space, so the third word is the whole id. One that stopped has $1 to close its connections.
-- name: end_backends_of_the_gone
SELECT worker.id, activity.pid, pg_terminate_backend(activity.pid) AS told
FROM pg_stat_activity AS activity
JOIN workers AS worker ON worker.id = split_part(activity.application_name, ' ', 3)
WHERE activity.datname = current_database()
  AND starts_with(activity.application_name, 'mainspring worker ')
  AND (worker.dead_at IS NOT NULL OR worker.stopped_at < now() - $1::interval);

-- $2: dead workers whose backends are still there.
-- name: claims_without_a_worker
SELECT claim.id
FROM claims AS claim
LEFT JOIN workers AS worker ON worker.id = claim.worker_id
WHERE claim.finished_at IS NULL AND claim.reaped_at IS NULL
  AND (worker.stopped_at IS NOT NULL
       OR worker.dead_at IS NOT NULL
       OR (worker.id IS NULL AND claim.claimed_at < now() - $1::interval))
  AND claim.worker_id <> ALL ($2::text[])
  AND claim.id <> ALL ($3::bigint[])
ORDER BY claim.id
LIMIT $4;

-- Locked until the commit, and read as it is then: a flush that came first is in these bytes, a later one finds
-- reaped_at. One that is being written now is left for the next round.
-- name: lock_open_claim
SELECT worker_id, claimed_at, outcomes, started_ms FROM claims
WHERE id = $1 AND finished_at IS NULL AND reaped_at IS NULL
FOR UPDATE SKIP LOCKED;

-- The earlier attempts at the same occurrence, newest first; one without a row in `failures` succeeded, or its row is
-- not written yet. Only who hands a run back knows when it ended. Most runs are first attempts, and cost no look. Before
-- attempt $3 no run can be dead: no bytes.
-- name: unfinished_runs
SELECT run.position, run.job_id, run.scheduled_at, run.attempt,
       job.tenant_id, job.shard, job.pool, job.handler, job.kind, job.overlap,
       coalesce(job.status, 'deleted') = 'deleted' AS job_is_gone,
       CASE WHEN run.attempt >= $3::smallint THEN job.body END AS body,
       earlier.attempts, earlier.statuses,
       CASE WHEN run.attempt > 1 THEN (
           SELECT max(attempt) FROM dead_letters AS letter
           WHERE letter.job_id = run.job_id AND letter.scheduled_at = run.scheduled_at
             AND letter.attempt < run.attempt) END AS last_letter
FROM runs AS run
LEFT JOIN jobs AS job ON job.id = run.job_id
LEFT JOIN LATERAL (
    SELECT array_agg(before.attempt ORDER BY before.attempt DESC) AS attempts,
           array_agg(CASE WHEN failure.status = 'lost' AND failure.ended_at IS NOT NULL THEN 'handed back'
                          ELSE coalesce(failure.status, '') END ORDER BY before.attempt DESC) AS statuses
    FROM runs AS before
    LEFT JOIN failures AS failure USING (job_id, scheduled_at, attempt)
    WHERE before.job_id = run.job_id AND before.scheduled_at = run.scheduled_at AND before.attempt < run.attempt
) AS earlier ON run.attempt > 1
WHERE run.claim_id = $1 AND run.position = ANY ($2::integer[])
ORDER BY run.job_id, run.scheduled_at, run.attempt;

-- name: add_lost_failures
INSERT INTO failures (job_id, scheduled_at, attempt, tenant_id, status, error, worker_id, started_at)
SELECT job_id, scheduled_at, attempt, tenant_id, status, $7, $8, started_at
FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[], $4::integer[], $5::text[], $6::timestamptz[])
     AS run (job_id, scheduled_at, attempt, tenant_id, status, started_at)
ON CONFLICT DO NOTHING;

-- A lost attempt spends no retry. A timer that is there already stays: somebody asked for that attempt before.
-- name: add_next_attempts
INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, retries, losses, cause)
SELECT shard, statement_timestamp(), job_id, scheduled_at, attempt, retries, losses, 'retry'
FROM unnest($1::smallint[], $2::bigint[], $3::timestamptz[], $4::smallint[], $5::smallint[], $6::smallint[])
     AS run (shard, job_id, scheduled_at, attempt, retries, losses)
ON CONFLICT DO NOTHING;

-- name: mark_claim_reaped
UPDATE claims SET reaped_at = now(), outcomes = $2 WHERE id = $1;

-- name: retained_from
SELECT now() - $1::interval;

-- Whether a claim that is not old enough, or not over, holds a run of that day. A range of time is a range of ids.
-- name: day_is_in_use
SELECT EXISTS (
    SELECT FROM runs
    WHERE scheduled_at >= $1 AND scheduled_at < $2
      AND claim_id >= least($3::bigint, (SELECT min(id) FROM claims
                                         WHERE finished_at IS NULL AND reaped_at IS NULL)));

-- One range of ids is one look into the days that are left, and none of it where they are gone.
-- name: sweep_claims
WITH looked AS MATERIALIZED (
    SELECT id FROM claims
    WHERE id > $1 AND id < $2 AND claimed_at < $3 AND (finished_at IS NOT NULL OR reaped_at IS NOT NULL)
    ORDER BY id LIMIT $4
),
used AS MATERIALIZED (
    SELECT DISTINCT claim_id FROM runs
    WHERE claim_id >= (SELECT min(id) FROM looked) AND claim_id <= (SELECT max(id) FROM looked)
),
gone AS (
    DELETE FROM claims USING looked
    WHERE claims.id = looked.id AND NOT EXISTS (SELECT FROM used WHERE used.claim_id = looked.id)
    RETURNING claims.id
)
SELECT (SELECT count(*) FROM looked) AS looked, (SELECT max(id) FROM looked) AS last,
       (SELECT count(*) FROM gone) AS gone;

-- Not one that has a timer; a completed one not while it can be redriven, nor while others wait for it as a parent:
-- without it they would be released by the rest of their parents. FOR UPDATE looks at the newest row again.
-- name: sweep_jobs
WITH looked AS MATERIALIZED (
    SELECT id, closed_at FROM jobs
    WHERE closed_at IS NOT NULL AND closed_at < now() - $2::interval AND status = $1
      AND (closed_at, id) > ($3::timestamptz, $4::bigint)
    ORDER BY closed_at, id LIMIT $5
),
free AS (
    SELECT id FROM jobs AS job JOIN looked USING (id, closed_at)
    WHERE job.status = $1
      AND NOT EXISTS (SELECT FROM timers WHERE timers.job_id = job.id)
      AND (job.status = 'deleted' OR (
           NOT EXISTS (SELECT FROM dead_letters AS letter WHERE letter.job_id = job.id AND redriven_at IS NULL)
           AND NOT EXISTS (SELECT FROM dependencies WHERE parent_id = job.id)))
    FOR UPDATE OF job SKIP LOCKED
),
gone AS (DELETE FROM jobs USING free WHERE jobs.id = free.id RETURNING jobs.id),
slots AS (DELETE FROM "overlaps" AS slot USING gone WHERE slot.job_id = gone.id)
SELECT (SELECT count(*) FROM looked) AS looked, (SELECT count(*) FROM gone) AS gone, closed_at, id
FROM looked ORDER BY closed_at DESC, id DESC LIMIT 1;

-- name: next_cadences
SELECT id FROM cadences WHERE id > $1 ORDER BY id LIMIT $2;

-- A job that is being written holds its cadence FOR KEY SHARE: skipped here. One that comes later waits for us.
-- name: lock_orphan_cadences
SELECT id FROM cadences
WHERE id = ANY ($1::bigint[]) AND NOT EXISTS (SELECT FROM jobs WHERE jobs.cadence_id = cadences.id)
ORDER BY id
FOR UPDATE SKIP LOCKED;

-- Under the locks and with a new snapshot: whoever came in between is seen now.
-- name: delete_orphan_cadences
DELETE FROM cadences
WHERE id = ANY ($1::bigint[]) AND NOT EXISTS (SELECT FROM jobs WHERE jobs.cadence_id = cadences.id)
RETURNING id;

-- name: sweep_workers
DELETE FROM workers WHERE id IN (
    SELECT id FROM workers
    WHERE stopped_at < now() - $1::interval OR dead_at < now() - $1::interval
    LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING id;

-- name: sweep_cancellations
DELETE FROM cancellations WHERE (job_id, scheduled_at, attempt) IN (
    SELECT job_id, scheduled_at, attempt FROM cancellations
    WHERE requested_at < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING job_id;

-- name: sweep_deferrals
DELETE FROM deferrals WHERE (job_id, scheduled_at, attempt) IN (
    SELECT job_id, scheduled_at, attempt FROM deferrals
    WHERE first_at < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING job_id;

-- name: sweep_idempotency_keys
DELETE FROM idempotency_keys WHERE (tenant_id, key, chunk) IN (
    SELECT tenant_id, key, chunk FROM idempotency_keys
    WHERE created_at < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING chunk;

-- name: unpublished_letters
SELECT id, tenant_id, job_id, scheduled_at, attempt, pool, handler, reason, error, fingerprint, body, created_at
FROM dead_letters
WHERE published_at IS NULL AND pool <> ALL ($1::text[])
ORDER BY id LIMIT $2;

-- name: mark_letters_published
UPDATE dead_letters SET published_at = now() WHERE id = ANY ($1::bigint[]) AND published_at IS NULL;
