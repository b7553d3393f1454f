-- What ran, and how it ended.

CREATE TABLE workers (
    id              text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9._-]{1,40}$'),
    pool            text NOT NULL CHECK (pool ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    lanes           text[] NOT NULL CHECK (cardinality(lanes) > 0
                    AND lanes <@ ARRAY['high', 'normal', 'low', 'catchup']),
    handlers        text[] NOT NULL DEFAULT '{}',
    concurrency     integer NOT NULL CHECK (concurrency > 0),
    started_at      timestamptz NOT NULL DEFAULT now(),
    -- Counts up. The reaper judges by whether the value moved while it watched, not by anybody's clock.
    heartbeat       bigint NOT NULL DEFAULT 0 CHECK (heartbeat >= 0),
    heartbeat_at    timestamptz NOT NULL DEFAULT now(),
    stopped_at      timestamptz,
    dead_at         timestamptz
) WITH (fillfactor = 50);

-- One row per batch; the only row that changes while its runs go on. No foreign key to workers: the row of a
-- worker long gone is removed, the history of what it did is not.
CREATE TABLE claims (
    id              bigint PRIMARY KEY CHECK (id > 0),
    worker_id       text NOT NULL CHECK (worker_id <> ''),
    claimed_at      timestamptz NOT NULL DEFAULT now(),
    -- One byte per position: mainspring.schema.states.Outcome. btrim leaves nothing if every byte is a known one.
    outcomes        bytea NOT NULL
                    CHECK (octet_length(outcomes) > 0
                       AND btrim(outcomes, '\x00010203040506070809'::bytea) = ''::bytea),
    -- Milliseconds after claimed_at, one per position; empty until the first flush, NULL where not yet.
    started_ms      integer[] NOT NULL DEFAULT '{}'
                    CHECK (cardinality(started_ms) IN (0, octet_length(outcomes))),
    ended_ms        integer[] NOT NULL DEFAULT '{}'
                    CHECK (cardinality(ended_ms) IN (0, octet_length(outcomes))),
    -- How many messages it took of which shard and second: three arrays side by side, read with unnest(a, b, c).
    tally_shards    smallint[] NOT NULL DEFAULT '{}',
    tally_seconds   timestamptz[] NOT NULL DEFAULT '{}',
    tally_counts    integer[] NOT NULL DEFAULT '{}' CHECK (0 < ALL (tally_counts)),
    finished_at     timestamptz,
    reaped_at       timestamptz,
    CHECK (cardinality(tally_shards) = cardinality(tally_counts)
       AND cardinality(tally_seconds) = cardinality(tally_counts))
);
-- What the reaper looks through. Its columns change once per claim, so flushes in between stay HOT.
CREATE INDEX claims_open ON claims (worker_id) WHERE finished_at IS NULL AND reaped_at IS NULL;

-- Append-only. The order of columns leaves no padding.
CREATE TABLE runs (
    job_id          bigint NOT NULL CHECK (job_id > 0),
    scheduled_at    timestamptz NOT NULL,
    claim_id        bigint NOT NULL CHECK (claim_id > 0),
    position        integer NOT NULL CHECK (position >= 0),
    attempt         smallint NOT NULL CHECK (attempt >= 1),
    PRIMARY KEY (job_id, scheduled_at, attempt)
) PARTITION BY RANGE (scheduled_at);
-- Claim ids grow with time, so a claim's runs lie in few ranges.
CREATE INDEX runs_by_claim ON runs USING brin (claim_id) WITH (pages_per_range = 32, autosummarize = on);

-- Whatever is not a plain success.
CREATE TABLE failures (
    job_id          bigint NOT NULL CHECK (job_id > 0),
    scheduled_at    timestamptz NOT NULL,
    attempt         smallint NOT NULL CHECK (attempt >= 1),
    tenant_id       integer NOT NULL,
    status          text NOT NULL CHECK (status IN
                    ('failed', 'dead', 'cancelled', 'lost', 'skipped', 'recalled', 'missed')),
    error           text,
    worker_id       text,
    started_at      timestamptz,
    ended_at        timestamptz,
    recorded_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, scheduled_at, attempt)
) PARTITION BY RANGE (scheduled_at);
CREATE INDEX failures_by_tenant ON failures (tenant_id, recorded_at);
CREATE INDEX failures_by_status ON failures (tenant_id, status, recorded_at);

CREATE TABLE results (
    job_id          bigint NOT NULL CHECK (job_id > 0),
    scheduled_at    timestamptz NOT NULL,
    attempt         smallint NOT NULL CHECK (attempt >= 1),
    value           json NOT NULL CHECK (octet_length(value::text) <= 262144),
    PRIMARY KEY (job_id, scheduled_at, attempt)
) PARTITION BY RANGE (scheduled_at);

CREATE TABLE run_logs (
    job_id          bigint NOT NULL CHECK (job_id > 0),
    scheduled_at    timestamptz NOT NULL,
    attempt         smallint NOT NULL CHECK (attempt >= 1),
    line            integer NOT NULL CHECK (line >= 0),
    at              timestamptz NOT NULL,
    level           text NOT NULL CHECK (level IN ('debug', 'info', 'warning', 'error', 'progress')),
    message         text NOT NULL CHECK (octet_length(message) <= 8192),
    PRIMARY KEY (job_id, scheduled_at, attempt, line)
) PARTITION BY RANGE (scheduled_at);

-- Written in the handler's own transaction: a later attempt finds it and does nothing again.
CREATE TABLE effects (
    job_id          bigint NOT NULL CHECK (job_id > 0),
    scheduled_at    timestamptz NOT NULL,
    attempt         smallint NOT NULL CHECK (attempt >= 1),
    recorded_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, scheduled_at)
) PARTITION BY RANGE (scheduled_at);

CREATE TABLE dead_letters (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- All four are NULL for a message that nobody could decode.
    tenant_id       integer,
    job_id          bigint CHECK (job_id > 0),
    scheduled_at    timestamptz,
    attempt         smallint CHECK (attempt >= 1),
    pool            text NOT NULL CHECK (pool <> ''),
    handler         text,
    reason          text NOT NULL CHECK (reason IN
                    ('exhausted', 'killed_workers', 'unknown_handler', 'too_large', 'unreadable')),
    error           text,
    traceback       text,
    fingerprint     text NOT NULL CHECK (fingerprint <> ''),
    -- The job's bytes as executed, or the whole message where it was unreadable.
    body            bytea NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- The redrive, and on its next death the letter before this one.
    redriven_at     timestamptz,
    previous_id     bigint REFERENCES dead_letters ON DELETE SET NULL,
    UNIQUE (job_id, scheduled_at, attempt),
    CHECK (num_nulls(tenant_id, job_id, scheduled_at, attempt) IN (0, 4)),
    CHECK ((reason = 'unreadable') = (job_id IS NULL))
);
CREATE INDEX dead_letters_by_fingerprint ON dead_letters (tenant_id, fingerprint, id);
CREATE INDEX dead_letters_by_tenant ON dead_letters (tenant_id, id);
CREATE INDEX dead_letters_by_previous ON dead_letters (previous_id) WHERE previous_id IS NOT NULL;

-- The words of mainspring.schema.states.Outcome. A position without an outcome is still running.
CREATE FUNCTION outcome_word(code integer) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (ARRAY['running', 'succeeded', 'failed', 'dead', 'cancelled', 'lost', 'skipped', 'recalled', 'missed',
                  'void'])[code + 1];

-- Runs as people read them; a claim is kept as long as any of its runs.
CREATE VIEW run_history AS
SELECT
    run.job_id,
    run.scheduled_at,
    run.attempt,
    CASE WHEN run.position < octet_length(claim.outcomes)
         THEN outcome_word(get_byte(claim.outcomes, run.position)) END AS status,
    claim.worker_id,
    claim.claimed_at,
    claim.claimed_at + claim.started_ms[run.position + 1] * interval '1 millisecond' AS started_at,
    claim.claimed_at + claim.ended_ms[run.position + 1] * interval '1 millisecond' AS ended_at,
    failure.error,
    result.value AS result,
    run.claim_id,
    run.position
FROM runs AS run
JOIN claims AS claim ON claim.id = run.claim_id
LEFT JOIN failures AS failure USING (job_id, scheduled_at, attempt)
LEFT JOIN results AS result USING (job_id, scheduled_at, attempt);
