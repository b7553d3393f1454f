-- What the HTTP API reads: mainspring/api. Everything about jobs is scoped by the tenant.

-- In order of id, which no change moves: what is inserted between two pages is on a later one or on none, and nothing
-- comes twice. $7 and $8 bound the name, which an index can use and a pattern cannot.
-- name: list_jobs
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
WHERE job.tenant_id = $1 AND job.status <> 'deleted'
  AND ($2::text IS NULL OR job.status = $2)
  AND ($3::text IS NULL OR job.handler = $3)
  AND ($4::text IS NULL OR job.pool = $4)
  AND ($5::jsonb IS NULL OR job.labels @> $5)
  AND ($6::text IS NULL OR (job.name >= $6 AND job.name < $7::text))
  AND job.id > $8
ORDER BY job.id LIMIT $9;

-- Exact up to a number; whoever gets one more asks the planner.
-- name: count_jobs
SELECT count(*)::integer FROM (
    SELECT FROM jobs AS job
    WHERE job.tenant_id = $1 AND job.status <> 'deleted'
      AND ($2::text IS NULL OR job.status = $2)
      AND ($3::text IS NULL OR job.handler = $3)
      AND ($4::text IS NULL OR job.pool = $4)
      AND ($5::jsonb IS NULL OR job.labels @> $5)
      AND ($6::text IS NULL OR (job.name >= $6 AND job.name < $7::text))
    LIMIT $8::integer) AS counted;

-- name: estimate_jobs
EXPLAIN (FORMAT JSON)
SELECT FROM jobs AS job
WHERE job.tenant_id = $1 AND job.status <> 'deleted'
  AND ($2::text IS NULL OR job.status = $2)
  AND ($3::text IS NULL OR job.handler = $3)
  AND ($4::text IS NULL OR job.pool = $4)
  AND ($5::jsonb IS NULL OR job.labels @> $5)
  AND ($6::text IS NULL OR (job.name >= $6 AND job.name < $7::text));

-- name: last_runs
SELECT job_id, scheduled_at, attempt, status, worker_id, claimed_at, started_at, ended_at, error, result
FROM run_history WHERE job_id = $1 ORDER BY scheduled_at DESC, attempt DESC LIMIT 1;

-- Of a deleted job too.
-- name: gone_job
SELECT status, closed_at, handler FROM jobs WHERE tenant_id = $1 AND id = $2;

-- All that the database knows of one instant of a job: runs, oldest attempt first.
-- name: runs_at
SELECT job_id, scheduled_at, attempt, status, worker_id, claimed_at, started_at, ended_at, error, result
FROM run_history
WHERE job_id = $1 AND scheduled_at >= $2 AND scheduled_at < $3
ORDER BY scheduled_at, attempt LIMIT 100;

-- name: timers_at
SELECT scheduled_at, attempt, due_at, cause FROM timers
WHERE job_id = $1 AND scheduled_at >= $2 AND scheduled_at < $3 ORDER BY scheduled_at, attempt LIMIT 100;

-- name: traces_at
SELECT shard.fired_through, shard.leader, shard.gap_to, clock_timestamp() AS now,
       (SELECT released_at FROM arrivals WHERE job_id = $1 AND scheduled_at = $3) AS released_at,
       (SELECT job_id = ANY (failed) FROM arrivals WHERE job_id = $1 AND scheduled_at = $3) AS dependent_skipped,
       (SELECT ARRAY(SELECT unnest(succeeded || failed)) FROM arrivals WHERE job_id = $1 AND scheduled_at = $3) AS arrived,
       (SELECT published - written_off > claimed + repaired FROM ledger
        WHERE ledger.shard = shard.shard AND second = date_trunc('second', $4::timestamptz)) AS is_short,
       (SELECT gap_from FROM missed WHERE cadence_id = $5::bigint AND gap_from < $3 AND gap_to >= $3 LIMIT 1) AS gap_from,
       (SELECT requested_at FROM cancellations WHERE job_id = $1 AND scheduled_at = $3 ORDER BY attempt DESC LIMIT 1)
       AS cancelled_at,
       (SELECT id FROM dead_letters WHERE job_id = $1 AND scheduled_at = $3 ORDER BY attempt DESC LIMIT 1) AS letter
FROM shards AS shard WHERE shard.shard = $2;

-- name: letters_summary
SELECT fingerprint, max(handler) AS handler, (array_agg(error ORDER BY id DESC))[1] AS error, count(*) AS count,
       count(*) FILTER (WHERE redriven_at IS NULL) AS open, min(created_at) AS first, max(created_at) AS last
FROM dead_letters WHERE tenant_id = $1
GROUP BY fingerprint ORDER BY count(*) DESC, fingerprint LIMIT $2;

-- Positions without an outcome are running.
-- name: list_workers
SELECT worker.id, worker.pool, worker.lanes, worker.handlers, worker.concurrency, worker.started_at,
       worker.heartbeat_at, worker.stopped_at, worker.dead_at,
       (SELECT count(*) FROM claims AS claim, generate_series(0, octet_length(claim.outcomes) - 1) AS position
        WHERE claim.worker_id = worker.id AND claim.finished_at IS NULL AND claim.reaped_at IS NULL
          AND get_byte(claim.outcomes, position) = 0) AS running
FROM workers AS worker WHERE worker.id > $1 ORDER BY worker.id LIMIT $2;

-- name: list_pools
SELECT pool, sum(jobs)::bigint AS jobs, sum(workers)::bigint AS workers, sum(letters)::bigint AS letters FROM (
    SELECT pool, count(*) AS jobs, 0 AS workers, 0 AS letters FROM jobs
    WHERE tenant_id = $1 AND status <> 'deleted' GROUP BY pool
    UNION ALL
    SELECT pool, 0, count(*), 0 FROM workers WHERE dead_at IS NULL AND stopped_at IS NULL GROUP BY pool
    UNION ALL
    SELECT pool, 0, 0, count(*) FROM dead_letters WHERE tenant_id = $1 AND redriven_at IS NULL GROUP BY pool
) AS parts GROUP BY pool ORDER BY pool;

-- Jobs that may fire before $2, by what decides when: the same cadence of all shards is one row.
-- name: forecast_cadences
SELECT cadence.kind, cadence.expression, cadence.timezone, cadence.dst_gap, cadence.dst_repeat, cadence.phase,
       job.jitter_seconds, job.starts_at, job.ends_at, count(*) AS jobs
FROM cadences AS cadence JOIN jobs AS job ON job.cadence_id = cadence.id
WHERE job.tenant_id = $1 AND job.status = 'active' AND cadence.next_at < $2
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 LIMIT $3;

-- name: forecast_timers
SELECT date_trunc('second', timer.due_at) AS second, count(*) AS jobs
FROM timers AS timer JOIN jobs AS job ON job.id = timer.job_id
WHERE job.tenant_id = $1 AND job.status = 'active' AND timer.due_at >= $2 AND timer.due_at < $3
GROUP BY 1;

-- name: database_now
SELECT clock_timestamp();

-- name: id_of_name
SELECT id FROM jobs WHERE tenant_id = $1 AND name = $2 AND status <> 'deleted';
