-- What else is true once runs have ended: mainspring/registry/endings.py and letters.py.

-- Frees the slots that these runs hold and takes them out of the queue where they only waited; tells who waits for
-- a slot that is free now. Locked in order and first: whoever queued itself meanwhile is in the row that is read. In quotes: OVERLAPS is a word of SQL.
-- name: free_overlaps
WITH met AS (
    SELECT slot.job_id, slot.queued_at, slot.queued_attempt,
           slot.scheduled_at = ended.scheduled_at AND slot.attempt = ended.attempt AS held
    FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[]) AS ended (job_id, scheduled_at, attempt)
    JOIN "overlaps" AS slot
      ON slot.job_id = ended.job_id
     AND ((slot.scheduled_at = ended.scheduled_at AND slot.attempt = ended.attempt)
       OR (slot.queued_at = ended.scheduled_at AND slot.queued_attempt = ended.attempt))
    ORDER BY slot.job_id
    FOR UPDATE OF slot
),
slots AS (
    SELECT job_id, bool_or(held) AS is_free, bool_and(held) AS queue_stands, max(queued_at) AS queued_at,
           max(queued_attempt) AS queued_attempt
    FROM met GROUP BY job_id
),
freed AS (
    DELETE FROM "overlaps" AS slot USING slots WHERE slot.job_id = slots.job_id AND slots.is_free
),
left_the_queue AS (
    UPDATE "overlaps" AS slot SET queued_at = NULL, queued_attempt = NULL
    FROM slots WHERE slot.job_id = slots.job_id AND NOT slots.is_free
)
SELECT job_id, queued_at, queued_attempt FROM slots WHERE is_free AND queue_stands AND queued_at IS NOT NULL;

-- A statement of its own: the timer of one that queued itself while the slot was waited for is seen only by a
-- snapshot taken afterwards. What is due already is left alone: it is on its way.
-- name: make_due
WITH waiting AS (
    SELECT timers.id
    FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[]) AS run (job_id, scheduled_at, attempt)
    JOIN timers USING (job_id, scheduled_at, attempt)
    WHERE timers.due_at > statement_timestamp()
    ORDER BY timers.id
    FOR UPDATE OF timers
)
UPDATE timers SET due_at = statement_timestamp() FROM waiting WHERE timers.id = waiting.id;

-- name: lock_one_offs
SELECT id FROM jobs WHERE id = ANY ($1::bigint[]) AND kind = 'at' AND status = 'active'
ORDER BY id FOR NO KEY UPDATE;

-- The rows are locked, so an edit or a trigger that came first is seen here. A timer whose run exists has been fired
-- and not yet deleted: it is no reason to wait. Scalar sub-queries, because a join over all runs is a plan that
-- Postgres might choose while it has no statistics of a new day.
-- name: complete_one_offs
UPDATE jobs AS job SET status = 'completed', closed_at = statement_timestamp()
WHERE job.id = ANY ($1::bigint[]) AND job.kind = 'at' AND job.status = 'active'
  AND (SELECT true FROM runs WHERE runs.job_id = job.id AND runs.scheduled_at = job.run_at LIMIT 1)
  AND (SELECT true FROM timers AS timer
       WHERE timer.job_id = job.id
         AND (SELECT true FROM runs
              WHERE runs.job_id = timer.job_id AND runs.scheduled_at = timer.scheduled_at
                AND runs.attempt = timer.attempt) IS NULL
       LIMIT 1) IS NULL;

-- name: somebody_depends
SELECT EXISTS (SELECT FROM dependencies);

-- name: jobs_with_dependents
SELECT DISTINCT parent_id FROM dependencies WHERE parent_id = ANY ($1::bigint[]);

-- The row's lock decides between two parents that end in the same moment: the second one waits, then adds itself to
-- what the first has left. A success is never taken back.
-- name: record_arrivals
INSERT INTO arrivals (job_id, scheduled_at, succeeded, failed)
SELECT dependency.job_id, parent.scheduled_at,
       coalesce(array_agg(dependency.parent_id) FILTER (WHERE parent.succeeded), '{}'),
       coalesce(array_agg(dependency.parent_id) FILTER (WHERE NOT parent.succeeded), '{}')
FROM unnest($1::bigint[], $2::timestamptz[], $3::boolean[]) AS parent (job_id, scheduled_at, succeeded)
JOIN dependencies AS dependency ON dependency.parent_id = parent.job_id
GROUP BY dependency.job_id, parent.scheduled_at
ORDER BY dependency.job_id, parent.scheduled_at
ON CONFLICT (job_id, scheduled_at) DO UPDATE SET
    succeeded = ARRAY(SELECT unnest(arrivals.succeeded || excluded.succeeded) AS parent_id
                      GROUP BY parent_id ORDER BY parent_id),
    failed = ARRAY(SELECT unnest(arrivals.failed || excluded.failed)
                   EXCEPT SELECT unnest(arrivals.succeeded || excluded.succeeded) ORDER BY 1)
RETURNING job_id, scheduled_at;

-- The rows are this transaction's; parents and policy are those of now. A dependent is skipped or released once, and
-- only a skipped one, marked by its own id among `failed`, is released later, when all have succeeded after all.
-- name: settle_arrivals
WITH complete AS (
    SELECT arrival.job_id, arrival.scheduled_at, job.shard,
           parents.all_succeeded OR job.on_failure = 'run' AS is_released
    FROM unnest($1::bigint[], $2::timestamptz[]) AS touched (job_id, scheduled_at)
    JOIN arrivals AS arrival USING (job_id, scheduled_at)
    JOIN jobs AS job ON job.id = arrival.job_id AND job.status <> 'deleted'
    CROSS JOIN LATERAL (
        SELECT bool_and(parent_id = ANY (arrival.succeeded || arrival.failed)) AS all_arrived,
               bool_and(parent_id = ANY (arrival.succeeded)) AS all_succeeded
        FROM dependencies WHERE dependencies.job_id = arrival.job_id
    ) AS parents
    WHERE parents.all_arrived
      AND (arrival.released_at IS NULL
           OR (parents.all_succeeded AND arrival.job_id = ANY (arrival.failed)))
),
marked AS (
    UPDATE arrivals
    SET released_at = statement_timestamp(),
        failed = CASE WHEN complete.is_released THEN array_remove(arrivals.failed, arrivals.job_id)
                      ELSE arrivals.failed || arrivals.job_id END
    FROM complete
    WHERE arrivals.job_id = complete.job_id AND arrivals.scheduled_at = complete.scheduled_at
),
timed AS (
    INSERT INTO timers (shard, due_at, job_id, scheduled_at, cause)
    SELECT shard, statement_timestamp(), job_id, scheduled_at, 'dependency'
    FROM complete WHERE is_released ORDER BY job_id, scheduled_at
    ON CONFLICT DO NOTHING
)
SELECT job_id, scheduled_at, is_released FROM complete;

-- `previous_id` is the letter whose redrive this attempt came from.
-- name: bury_letters
INSERT INTO dead_letters (
    tenant_id, job_id, scheduled_at, attempt, pool, handler, reason, error, traceback, fingerprint, body, previous_id
)
SELECT letter.*, (
    SELECT earlier.id FROM dead_letters AS earlier
    WHERE earlier.job_id = letter.job_id AND earlier.scheduled_at = letter.scheduled_at
      AND earlier.attempt < letter.attempt AND earlier.redriven_at IS NOT NULL
    ORDER BY earlier.attempt DESC LIMIT 1
)
FROM unnest($1::integer[], $2::bigint[], $3::timestamptz[], $4::smallint[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::bytea[])
     AS letter (tenant_id, job_id, scheduled_at, attempt, pool, handler, reason, error, traceback, fingerprint, body)
ORDER BY letter.job_id, letter.scheduled_at, letter.attempt
ON CONFLICT DO NOTHING;

-- name: bury_unreadable
INSERT INTO dead_letters (pool, reason, error, fingerprint, body)
SELECT $1::text, 'unreadable', error, fingerprint, body
FROM unnest($2::text[], $3::text[], $4::bytea[]) AS message (error, fingerprint, body);
