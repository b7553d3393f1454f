-- Runs and dead letters as their owners see them: mainspring/registry/runs.py and letters.py.

-- Of a deleted job too: its history stays readable.
-- name: job_of_tenant
SELECT id FROM jobs WHERE tenant_id = $1 AND id = $2;

-- name: run_by_key
SELECT run.job_id, run.scheduled_at, run.attempt, run.status, run.worker_id, run.claimed_at, run.started_at,
       run.ended_at, run.error, run.result
FROM run_history AS run
JOIN jobs AS job ON job.id = run.job_id
WHERE job.tenant_id = $1 AND run.job_id = $2 AND run.scheduled_at = $3 AND run.attempt = $4;

-- Newest first. The second bound says the same as the first in words by which days are left out.
-- name: runs_of_job
SELECT job_id, scheduled_at, attempt, status, worker_id, claimed_at, started_at, ended_at, error, result
FROM run_history
WHERE job_id = $1
  AND (scheduled_at, attempt) < (coalesce($2::timestamptz, 'infinity'), coalesce($3::smallint, 1::smallint))
  AND scheduled_at <= coalesce($2, 'infinity')
ORDER BY scheduled_at DESC, attempt DESC LIMIT $4;

-- name: lines_of_run
SELECT line, at, level, message FROM run_logs
WHERE job_id = $1 AND scheduled_at = $2 AND attempt = $3 AND line > $4 ORDER BY line LIMIT $5;

-- Everything the database knows of a run that somebody wants to cancel. `is_next`: the attempt before it says that
-- this one exists.
-- name: run_to_cancel
SELECT (SELECT status FROM run_history WHERE job_id = $2 AND scheduled_at = $3 AND attempt = $4) AS outcome,
       (SELECT due_at FROM timers WHERE job_id = $2 AND scheduled_at = $3 AND attempt = $4) AS due_at,
       (SELECT status IN ('failed', 'lost', 'recalled') FROM run_history
        WHERE job_id = $2 AND scheduled_at = $3 AND attempt = $4 - 1)
       OR EXISTS (SELECT FROM dead_letters
                  WHERE job_id = $2 AND scheduled_at = $3 AND attempt = $4 - 1 AND redriven_at IS NOT NULL) AS is_next,
       (SELECT CASE WHEN released_at IS NULL THEN 'waiting' WHEN job_id = ANY (failed) THEN 'skipped' ELSE 'released' END
        FROM arrivals WHERE job_id = $2 AND scheduled_at = $3) AS arrival
FROM jobs WHERE tenant_id = $1 AND id = $2;

-- name: request_cancellation
INSERT INTO cancellations (job_id, scheduled_at, attempt, reason) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: read_cancellation
SELECT reason, requested_at FROM cancellations WHERE job_id = $1 AND scheduled_at = $2 AND attempt = $3;

-- Whatever has a run or a timer, of any attempt, is left as it is; with $4, what has ended is run again. A failed or
-- lost attempt has a successor, and a claim that is being written is met by the conflict.
-- name: insert_backfill
INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, cause)
SELECT $1::smallint, statement_timestamp(), $2::bigint, instant, 1 + coalesce(last.attempt, 0), 'backfill'
FROM unnest($3::timestamptz[]) AS instant
LEFT JOIN LATERAL (
    SELECT attempt, status FROM run_history WHERE job_id = $2 AND scheduled_at = instant
    ORDER BY attempt DESC LIMIT 1
) AS last ON true
WHERE (last.attempt IS NULL OR ($4::boolean AND last.status NOT IN ('running', 'failed', 'lost')))
  AND (SELECT true FROM timers AS timer WHERE timer.job_id = $2 AND timer.scheduled_at = instant LIMIT 1) IS NULL
ORDER BY instant
ON CONFLICT DO NOTHING;

-- The same, without writing.
-- name: missing_occurrences
SELECT instant
FROM unnest($2::timestamptz[]) AS instant
LEFT JOIN LATERAL (
    SELECT attempt, status FROM run_history WHERE job_id = $1 AND scheduled_at = instant
    ORDER BY attempt DESC LIMIT 1
) AS last ON true
WHERE (last.attempt IS NULL OR ($3::boolean AND last.status NOT IN ('running', 'failed', 'lost')))
  AND (SELECT true FROM timers AS timer WHERE timer.job_id = $1 AND timer.scheduled_at = instant LIMIT 1) IS NULL
ORDER BY instant;

-- name: find_letters
SELECT id, tenant_id, job_id, scheduled_at, attempt, pool, handler, reason, error, fingerprint, created_at,
       redriven_at, previous_id
FROM dead_letters
WHERE tenant_id = $1
  AND ($2::text IS NULL OR fingerprint = $2)
  AND ($3::text IS NULL OR handler = $3)
  AND ($4::bigint IS NULL OR job_id = $4)
  AND ($5::timestamptz IS NULL OR created_at >= $5)
  AND ($6::boolean IS NULL OR (redriven_at IS NOT NULL) = $6)
  AND id > $7
ORDER BY id LIMIT $8;

-- name: count_letters
SELECT count(*) FROM dead_letters
WHERE tenant_id = $1
  AND ($2::text IS NULL OR fingerprint = $2)
  AND ($3::text IS NULL OR handler = $3)
  AND ($4::bigint IS NULL OR job_id = $4)
  AND ($5::timestamptz IS NULL OR created_at >= $5)
  AND ($6::boolean IS NULL OR (redriven_at IS NOT NULL) = $6);

-- name: letter_by_id
SELECT id, tenant_id, job_id, scheduled_at, attempt, pool, handler, reason, error, fingerprint, created_at,
       redriven_at, previous_id, traceback, body
FROM dead_letters WHERE tenant_id = $1 AND id = $2;

-- The same filter. Those whose job is deleted are left out, so that they do not fill the limit each time.
-- name: letters_to_redrive
SELECT letter.id
FROM dead_letters AS letter
JOIN jobs AS job ON job.id = letter.job_id AND job.status <> 'deleted'
WHERE letter.tenant_id = $1
  AND ($2::text IS NULL OR letter.fingerprint = $2)
  AND ($3::text IS NULL OR letter.handler = $3)
  AND ($4::bigint IS NULL OR letter.job_id = $4)
  AND ($5::timestamptz IS NULL OR letter.created_at >= $5)
  AND ($6::boolean IS NULL OR (letter.redriven_at IS NOT NULL) = $6)
ORDER BY letter.id LIMIT $7;

-- name: days_of_letters
SELECT DISTINCT (scheduled_at AT TIME ZONE 'UTC')::date AS day FROM dead_letters
WHERE tenant_id = $1 AND id = ANY ($2::bigint[]);

-- Messages nobody could read belong to nobody: found, so that the refusal can say so. NO KEY: the next death of the
-- run refers to its letter, and must not wait for us.
-- name: lock_letters
SELECT id, job_id FROM dead_letters
WHERE id = ANY ($2::bigint[]) AND (tenant_id = $1 OR tenant_id IS NULL)
ORDER BY id FOR NO KEY UPDATE;

-- name: letters_of_tenant
SELECT id FROM dead_letters WHERE tenant_id = $1 AND id = ANY ($2::bigint[]) ORDER BY id;

-- name: lock_jobs
SELECT FROM jobs WHERE id = ANY ($1::bigint[]) ORDER BY id FOR NO KEY UPDATE;

-- What has become of the occurrences of locked letters. A timer whose run exists has been fired.
-- name: judge_letters
SELECT letter.id, letter.job_id, letter.scheduled_at, letter.redriven_at, job.status AS job_status,
       (SELECT status FROM run_history AS run
        WHERE run.job_id = letter.job_id AND run.scheduled_at = letter.scheduled_at AND run.attempt > letter.attempt
        ORDER BY run.attempt DESC LIMIT 1) AS later,
       (SELECT newer.id FROM dead_letters AS newer
        WHERE newer.job_id = letter.job_id AND newer.scheduled_at = letter.scheduled_at
          AND newer.attempt > letter.attempt
        ORDER BY newer.attempt DESC LIMIT 1) AS newer_id,
       EXISTS (SELECT FROM timers AS timer
               WHERE timer.job_id = letter.job_id AND timer.scheduled_at = letter.scheduled_at
                 AND timer.attempt > letter.attempt
                 AND NOT EXISTS (SELECT FROM runs WHERE runs.job_id = timer.job_id
                                   AND runs.scheduled_at = timer.scheduled_at AND runs.attempt = timer.attempt))
       AS has_timer,
       1 + greatest(
           (SELECT max(attempt) FROM runs WHERE job_id = letter.job_id AND scheduled_at = letter.scheduled_at),
           (SELECT max(attempt) FROM timers WHERE job_id = letter.job_id AND scheduled_at = letter.scheduled_at),
           (SELECT max(attempt) FROM dead_letters WHERE job_id = letter.job_id AND scheduled_at = letter.scheduled_at)
       )::integer AS next_attempt
FROM dead_letters AS letter
LEFT JOIN jobs AS job ON job.id = letter.job_id
WHERE letter.id = ANY ($1::bigint[])
ORDER BY letter.id;

-- name: redrive_letters
WITH redriven AS (
    UPDATE dead_letters SET redriven_at = statement_timestamp() WHERE id = ANY ($1::bigint[])
),
revived AS (
    UPDATE jobs SET status = 'active', closed_at = NULL WHERE id = ANY ($3::bigint[]) AND status = 'completed'
)
INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, cause)
SELECT shard, statement_timestamp(), job_id, scheduled_at, attempt, 'redrive'
FROM unnest($2::smallint[], $3::bigint[], $4::timestamptz[], $5::smallint[]) AS run (shard, job_id, scheduled_at, attempt)
ORDER BY job_id, scheduled_at
ON CONFLICT DO NOTHING;
