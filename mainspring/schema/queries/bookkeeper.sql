-- What the bookkeeper reads and writes: mainspring/scheduler/duties/bookkeeper.py and books.py.

-- name: books_position
SELECT counted_through, clock_timestamp() AS now FROM books;

-- Each claim is counted once: the position moves in the same statement, and only from where the caller saw it. One
-- statement, so that no lock on a row of the ledger ever waits for a client: leaders write there too.
-- name: count_claims
WITH moved AS (
    UPDATE books SET counted_through = $2 WHERE counted_through = $1 RETURNING true
)
INSERT INTO ledger (shard, second, published, claimed)
SELECT tally.shard, tally.second, 0, sum(tally.won)
FROM claims
CROSS JOIN LATERAL unnest(claims.tally_shards, claims.tally_seconds, claims.tally_counts)
     AS tally (shard, second, won)
WHERE claims.claimed_at > $1 AND claims.claimed_at <= $2 AND tally.second > $3
  AND EXISTS (SELECT FROM moved)
GROUP BY tally.shard, tally.second
ORDER BY tally.shard, tally.second
ON CONFLICT (shard, second) DO UPDATE SET claimed = ledger.claimed + excluded.claimed;

-- name: days_of_claims
SELECT DISTINCT (tally.second AT TIME ZONE 'UTC')::date AS day
FROM claims CROSS JOIN LATERAL unnest(claims.tally_seconds) AS tally (second)
WHERE claims.claimed_at > $1 AND claims.claimed_at <= $2 AND tally.second > $3;

-- The condition is that of the index ledger_short, to the letter.
-- name: short_seconds
SELECT shard, second, published - written_off - claimed - repaired AS short, published, claimed, repairs,
       written_off, published_at
FROM ledger
WHERE published - written_off > claimed + repaired AND look_at <= $1 AND second > $2
ORDER BY look_at, second, shard
LIMIT $3;

-- name: pools_of_workers
SELECT DISTINCT pool FROM workers;

-- `next_at` is of no use here: it has passed what is looked for.
-- name: cadences_of_shards
SELECT id, shard, kind, expression, timezone, dst_gap, dst_repeat, phase, max_jitter
FROM cadences WHERE shard = ANY ($1::smallint[]);

-- Members of cadences that had an occurrence, and nothing of it: neither run nor timer nor letter. Without `plain`,
-- only those with a jitter. Scalar sub-queries: each is one look into an index, and never a join over all runs.
-- name: members_without_trace
SELECT job.id, job.shard, job.tenant_id, job.cadence_id, job.status, job.valid_from, job.starts_at, job.ends_at,
       job.jitter_seconds, job.pool, job.priority, job.missed_window, job.grace_seconds, job.max_missed,
       occurrence.scheduled_at
FROM unnest($1::bigint[], $2::timestamptz[], $3::boolean[]) AS occurrence (cadence_id, scheduled_at, plain)
JOIN jobs AS job ON job.cadence_id = occurrence.cadence_id
WHERE (occurrence.plain OR job.jitter_seconds > 0)
  AND (SELECT true FROM runs
       WHERE runs.job_id = job.id AND runs.scheduled_at = occurrence.scheduled_at LIMIT 1) IS NULL
  AND (SELECT true FROM timers
       WHERE timers.job_id = job.id AND timers.scheduled_at = occurrence.scheduled_at LIMIT 1) IS NULL
  AND (SELECT true FROM dead_letters AS letter
       WHERE letter.job_id = job.id AND letter.scheduled_at = occurrence.scheduled_at LIMIT 1) IS NULL;

-- name: one_offs_without_trace
SELECT job.id, job.shard, job.status, job.jitter_seconds, job.pool, job.run_at
FROM jobs AS job
WHERE job.kind = 'at' AND job.status <> 'completed' AND job.shard = ANY ($1::smallint[])
  AND job.run_at > $2 AND job.run_at <= $3
  AND (SELECT true FROM runs
       WHERE runs.job_id = job.id AND runs.scheduled_at = job.run_at LIMIT 1) IS NULL
  AND (SELECT true FROM timers
       WHERE timers.job_id = job.id AND timers.scheduled_at = job.run_at LIMIT 1) IS NULL
  AND (SELECT true FROM dead_letters AS letter
       WHERE letter.job_id = job.id AND letter.scheduled_at = job.run_at LIMIT 1) IS NULL;

-- Attempts that somebody has promised between $2 and $3, and nothing of them: after a failure or a loss, of a
-- released dependent, of a redriven letter, of a run put off because nobody had its handler. An instant that a
-- one-off no longer has was given up with its retries. Oldest first: what was promised last may be on its way.
-- name: attempts_without_trace
WITH promised AS (
    SELECT job_id, scheduled_at, attempt + 1 AS attempt, attempt AS letter, recorded_at AS since
    FROM failures
    WHERE status IN ('failed', 'lost') AND recorded_at > $2 AND recorded_at <= $3 AND scheduled_at > $4
    UNION ALL
    SELECT job_id, scheduled_at, 1, 1, released_at
    FROM arrivals
    WHERE released_at > $2 AND released_at <= $3 AND scheduled_at > $4 AND job_id <> ALL (failed)
    UNION ALL
    SELECT job_id, scheduled_at, attempt + 1, attempt + 1, redriven_at
    FROM dead_letters
    WHERE redriven_at > $2 AND redriven_at <= $3 AND scheduled_at > $4
    UNION ALL
    SELECT job_id, scheduled_at, attempt, attempt, first_at
    FROM deferrals
    WHERE first_at > $2 AND first_at <= $3 AND scheduled_at > $4
)
SELECT job.id, job.shard, job.status, job.pool, promised.scheduled_at, promised.attempt, promised.since,
       earlier.attempts, earlier.statuses,
       (SELECT max(letter.attempt) FROM dead_letters AS letter
        WHERE letter.job_id = job.id AND letter.scheduled_at = promised.scheduled_at
          AND letter.attempt < promised.attempt) AS last_letter
FROM promised
JOIN jobs AS job ON job.id = promised.job_id AND job.shard = ANY ($1::smallint[])
CROSS JOIN LATERAL (
    SELECT array_agg(failure.attempt ORDER BY failure.attempt DESC) AS attempts,
           array_agg(CASE WHEN failure.status = 'lost' AND failure.ended_at IS NOT NULL THEN 'handed back'
                          ELSE failure.status END ORDER BY failure.attempt DESC) AS statuses
    FROM failures AS failure
    WHERE failure.job_id = job.id AND failure.scheduled_at = promised.scheduled_at
      AND failure.attempt < promised.attempt
) AS earlier
WHERE (job.kind <> 'at' OR job.run_at = promised.scheduled_at)
  AND (SELECT true FROM runs
       WHERE runs.job_id = job.id AND runs.scheduled_at = promised.scheduled_at
         AND runs.attempt >= promised.attempt LIMIT 1) IS NULL
  AND (SELECT true FROM timers
       WHERE timers.job_id = job.id AND timers.scheduled_at = promised.scheduled_at
         AND timers.attempt >= promised.attempt LIMIT 1) IS NULL
  AND (SELECT true FROM dead_letters AS letter
       WHERE letter.job_id = job.id AND letter.scheduled_at = promised.scheduled_at
         AND letter.attempt >= promised.letter LIMIT 1) IS NULL
ORDER BY promised.since, job.id
LIMIT $5;

-- A second that somebody else has settled meanwhile is left alone, and nothing of it is published again. The timers
-- are due in the second itself: what is published again is counted in this very row, and is as late as it is.
-- name: settle_seconds
WITH settled AS (
    UPDATE ledger
    SET repaired = ledger.repaired + page.repaired,
        written_off = ledger.written_off + page.written_off,
        repairs = ledger.repairs + CASE WHEN page.repaired > 0 THEN 1 ELSE 0 END,
        look_at = CASE WHEN page.waits THEN now() + (now() - ledger.published_at) / 2 ELSE ledger.look_at END
    FROM unnest($1::smallint[], $2::timestamptz[], $3::smallint[], $4::integer[], $5::integer[], $6::integer[],
                $7::boolean[])
         AS page (shard, second, seen_repairs, seen_written_off, repaired, written_off, waits)
    WHERE ledger.shard = page.shard AND ledger.second = page.second
      AND ledger.repairs = page.seen_repairs AND ledger.written_off = page.seen_written_off
    RETURNING ledger.shard, ledger.second
),
timed AS (
    INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, retries, losses, cause)
    SELECT run.shard, run.second, run.job_id, run.scheduled_at, run.attempt, run.retries, run.losses, 'deferred'
    FROM unnest($8::smallint[], $9::timestamptz[], $10::bigint[], $11::timestamptz[], $12::smallint[],
                $13::smallint[], $14::smallint[])
         AS run (shard, second, job_id, scheduled_at, attempt, retries, losses)
    JOIN settled USING (shard, second)
    ON CONFLICT DO NOTHING
    RETURNING shard, due_at
)
SELECT settled.shard, settled.second, count(timed.shard) AS timers
FROM settled LEFT JOIN timed ON timed.shard = settled.shard AND timed.due_at = settled.second
GROUP BY settled.shard, settled.second;
