-- What is to run, and how far each shard has fired.
--
-- Shards are checked against the cluster's own number: creating the cluster adds `CHECK (shard BETWEEN 0 AND N - 1)`
-- to every table with a shard. A foreign key to `shards` would lock a row there for each job written, and those
-- rows are updated every second.

CREATE TABLE cluster (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    shards      integer NOT NULL CHECK (shards BETWEEN 1 AND 4096),
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER cluster_is_written_once BEFORE UPDATE OR DELETE OR TRUNCATE ON cluster
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('the number of shards is written once');

CREATE TABLE shards (
    shard           smallint PRIMARY KEY CHECK (shard >= 0),
    epoch           bigint NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    leader          text CHECK (leader <> ''),
    -- The mark: everything due up to and including this second has been published.
    fired_through   timestamptz NOT NULL DEFAULT date_trunc('second', now()),
    -- Every change this snapshot sees has been applied and what it made due acknowledged; and when that was.
    seen            pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),
    seen_at         timestamptz NOT NULL DEFAULT now(),
    -- The timeline in whose transaction ids `seen` is counted: under another one it means nothing.
    timeline        text NOT NULL DEFAULT left(pg_walfile_name(pg_current_wal_lsn()), 8)
                    CHECK (timeline ~ '^[0-9A-F]{8}$'),
    -- The end of the gap a takeover found, until the mark has passed it: a second takeover decides the same.
    gap_to          timestamptz,
    CHECK (isfinite(fired_through))
) WITH (fillfactor = 25);  -- updated every second: room for HOT updates in the page
CREATE TRIGGER shards_never_go_back BEFORE UPDATE ON shards
    FOR EACH ROW WHEN (NEW.fired_through < OLD.fired_through OR NEW.epoch < OLD.epoch)
    EXECUTE FUNCTION refuse('neither the mark nor the epoch moves back');

CREATE TABLE cadences (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard       smallint NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('cron', 'every')),
    expression  text NOT NULL CHECK (expression <> ''),
    timezone    text NOT NULL CHECK (timezone <> ''),
    dst_gap     text NOT NULL DEFAULT 'run_after' CHECK (dst_gap IN ('run_after', 'skip')),
    dst_repeat  text NOT NULL DEFAULT 'first' CHECK (dst_repeat IN ('first', 'second', 'both')),
    phase       integer NOT NULL DEFAULT 0 CHECK (phase >= 0 AND (kind = 'every' OR phase = 0)),
    -- A lower bound of the next occurrence and the tzdata it was computed with; another version: compute again.
    next_at     timestamptz NOT NULL DEFAULT '-infinity',
    tzdata      text,
    -- The longest jitter any member ever had, in seconds.
    max_jitter  integer NOT NULL DEFAULT 0 CHECK (max_jitter >= 0),
    UNIQUE (shard, kind, expression, timezone, dst_gap, dst_repeat, phase),
    UNIQUE (id, shard)
);
CREATE INDEX cadences_by_next_at ON cadences (shard, next_at);
CREATE TRIGGER cadences_jitter_only_grows BEFORE UPDATE OF max_jitter ON cadences
    FOR EACH ROW WHEN (NEW.max_jitter < OLD.max_jitter)
    EXECUTE FUNCTION refuse('max_jitter only grows');

CREATE TABLE jobs (
    id              bigint PRIMARY KEY CHECK (id > 0),
    tenant_id       integer NOT NULL REFERENCES tenants,
    shard           smallint NOT NULL,
    name            text COLLATE "C" CHECK (name <> '' AND length(name) <= 200),
    status          text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'completed', 'deleted')),
    version         integer NOT NULL DEFAULT 1 CHECK (version >= 1),
    -- The transaction that last changed the row: the change feed. Set here on INSERT, by the trigger on UPDATE.
    changed         xid8 NOT NULL DEFAULT pg_current_xact_id(),

    -- When. `schedule` is what the owner wrote; the cadence has the canonical form.
    kind            text NOT NULL CHECK (kind IN ('cron', 'every', 'at', 'after')),
    schedule        text NOT NULL,
    timezone        text NOT NULL DEFAULT 'UTC' CHECK (timezone <> ''),
    cadence_id      bigint CHECK ((cadence_id IS NOT NULL) = (kind IN ('cron', 'every'))),
    run_at          timestamptz CHECK ((run_at IS NOT NULL) = (kind = 'at')),
    -- Owns only occurrences after this: set by create, by an edit of the schedule and by resume.
    valid_from      timestamptz NOT NULL DEFAULT now(),
    starts_at       timestamptz,
    ends_at         timestamptz CHECK (ends_at > starts_at),
    jitter_seconds  integer NOT NULL DEFAULT 0 CHECK (jitter_seconds BETWEEN 0 AND 86400),

    -- What, and the policies around it.
    handler         text NOT NULL CHECK (handler <> '' AND length(handler) <= 200),
    pool            text NOT NULL DEFAULT 'default' CHECK (pool ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    priority        smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 0 AND 9),
    missed_window   text NOT NULL DEFAULT 'RUN_ONCE' CHECK (missed_window IN ('SKIP', 'RUN_ONCE', 'RUN_ALL')),
    max_missed      integer NOT NULL DEFAULT 100 CHECK (max_missed >= 1),
    grace_seconds   integer NOT NULL DEFAULT 60 CHECK (grace_seconds >= 0),
    overlap         text NOT NULL DEFAULT 'allow'
                    CHECK (overlap IN ('allow', 'skip', 'queue_one', 'cancel_running')),
    max_retries     smallint NOT NULL DEFAULT 3 CHECK (max_retries >= 0),
    retry_backoff   text NOT NULL DEFAULT 'exponential'
                    CHECK (retry_backoff IN ('exponential', 'linear', 'fixed', 'none')),
    timeout_seconds integer NOT NULL DEFAULT 300 CHECK (timeout_seconds >= 1),
    idempotency_key_template text CHECK (idempotency_key_template <> ''),
    on_failure      text NOT NULL DEFAULT 'skip' CHECK (on_failure IN ('skip', 'run')),
    labels          jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    -- The bytes that follow the prefix of each message, payload included: a payload is stored once, and here.
    body            bytea NOT NULL CHECK (octet_length(body) BETWEEN 1 AND 1000000),

    paused_reason   text CHECK (paused_reason IS NULL OR status = 'paused'),
    resume_at       timestamptz CHECK (resume_at IS NULL OR status = 'paused'),
    -- Since when a one-off is completed or a job is a tombstone; the janitor collects by it.
    closed_at       timestamptz CHECK ((closed_at IS NOT NULL) = (status IN ('completed', 'deleted'))),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    -- Both columns, so that a job cannot join the cadence of another shard.
    FOREIGN KEY (cadence_id, shard) REFERENCES cadences (id, shard)
);
-- Members of a cadence. No status in it: nothing on this index changes when a job fires, pauses or resumes.
CREATE INDEX jobs_by_cadence ON jobs (cadence_id) WHERE cadence_id IS NOT NULL;
CREATE INDEX jobs_by_changed ON jobs (changed);
CREATE UNIQUE INDEX jobs_by_name ON jobs (tenant_id, name) WHERE status <> 'deleted' AND name IS NOT NULL;
CREATE INDEX jobs_by_resume_at ON jobs (resume_at) WHERE resume_at IS NOT NULL;
CREATE INDEX jobs_by_closed_at ON jobs (closed_at) WHERE closed_at IS NOT NULL;

-- A change that forgot to say so would never reach the wheel, so it is not left to whoever writes the UPDATE.
-- Jobs are not updated when they fire; the cost falls on edits alone.
CREATE FUNCTION mark_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.changed := pg_current_xact_id();
    RETURN NEW;
END $$;
CREATE TRIGGER jobs_mark_changed BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION mark_changed();

-- No foreign key to jobs: a burst of retries inserts hundreds of thousands. A timer without its job is dropped by
-- the leader that meets it.
CREATE TABLE timers (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard           smallint NOT NULL,
    due_at          timestamptz NOT NULL CHECK (isfinite(due_at)),
    job_id          bigint NOT NULL CHECK (job_id > 0),
    scheduled_at    timestamptz NOT NULL CHECK (scheduled_at >= '1970-01-01 00:00:00+00' AND isfinite(scheduled_at)),
    attempt         smallint NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    -- Spent of the job's budget so far (a redrive starts at 0), and how often its worker died.
    retries         smallint NOT NULL DEFAULT 0 CHECK (retries >= 0),
    losses          smallint NOT NULL DEFAULT 0 CHECK (losses >= 0),
    cause           text NOT NULL CHECK (cause IN
                    ('one_off', 'retry', 'trigger', 'dependency', 'backfill', 'redrive', 'deferred')),
    changed         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- One timer per run: whoever defers a run that still has one moves it, and `changed` keeps it from deletion.
    UNIQUE (job_id, scheduled_at, attempt)
);
CREATE INDEX timers_by_due_at ON timers (shard, due_at);
CREATE INDEX timers_by_changed ON timers (changed);
CREATE TRIGGER timers_mark_changed BEFORE UPDATE ON timers FOR EACH ROW EXECUTE FUNCTION mark_changed();

CREATE TABLE dependencies (
    job_id      bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,
    parent_id   bigint NOT NULL REFERENCES jobs ON DELETE CASCADE CHECK (parent_id <> job_id),
    PRIMARY KEY (job_id, parent_id)
);
CREATE INDEX dependencies_by_parent ON dependencies (parent_id);

-- Which parents of a dependent have ended for one instant; whoever completes it inserts the timer.
CREATE TABLE arrivals (
    job_id          bigint NOT NULL,
    scheduled_at    timestamptz NOT NULL,
    succeeded       bigint[] NOT NULL DEFAULT '{}',
    failed          bigint[] NOT NULL DEFAULT '{}',
    released_at     timestamptz,
    PRIMARY KEY (job_id, scheduled_at)
) PARTITION BY RANGE (scheduled_at);

-- How many messages a shard published for a second. Compared with the tallies in `claims`.
CREATE TABLE ledger (
    second      timestamptz NOT NULL,
    published   integer NOT NULL CHECK (published > 0),
    shard       smallint NOT NULL,
    PRIMARY KEY (shard, second)
) PARTITION BY RANGE (second);

-- What a takeover decided not to run: one row per cadence and gap.
CREATE TABLE missed (
    cadence_id  bigint NOT NULL,
    gap_from    timestamptz NOT NULL,
    gap_to      timestamptz NOT NULL CHECK (gap_to > gap_from),
    skipped     bigint NOT NULL CHECK (skipped > 0),
    decided_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (cadence_id, gap_to)
);
