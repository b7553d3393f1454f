-- What workers and duties need besides the runs themselves.

-- Who may run next, for jobs whose overlap policy is not `allow`: one row per such job, locked by every claim of one
-- of its runs. The run under way is over when its position in its claim has an outcome or the claim was reaped.
CREATE TABLE "overlaps" (
    job_id          bigint PRIMARY KEY CHECK (job_id > 0),
    claim_id        bigint NOT NULL CHECK (claim_id > 0),
    position        integer NOT NULL CHECK (position >= 0),
    scheduled_at    timestamptz NOT NULL,
    attempt         smallint NOT NULL CHECK (attempt >= 1),
    -- The one that waits, as a timer; whoever ends the run under way makes it due.
    queued_at       timestamptz,
    queued_attempt  smallint CHECK (queued_attempt >= 1),
    CHECK ((queued_at IS NULL) = (queued_attempt IS NULL))
) WITH (fillfactor = 50);

-- Requests to cancel a run, be it queued or running. A row is also what makes two requests one.
CREATE TABLE cancellations (
    job_id          bigint NOT NULL CHECK (job_id > 0),
    scheduled_at    timestamptz NOT NULL,
    attempt         smallint NOT NULL CHECK (attempt >= 1),
    reason          text,
    requested_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, scheduled_at, attempt)
);
CREATE INDEX cancellations_by_requested_at ON cancellations (requested_at);

-- Since when a run is put off because no worker that met it has its handler.
CREATE TABLE deferrals (
    job_id          bigint NOT NULL CHECK (job_id > 0),
    scheduled_at    timestamptz NOT NULL,
    attempt         smallint NOT NULL CHECK (attempt >= 1),
    first_at        timestamptz NOT NULL DEFAULT now(),
    times           integer NOT NULL DEFAULT 1 CHECK (times >= 1),
    PRIMARY KEY (job_id, scheduled_at, attempt)
);
CREATE INDEX deferrals_by_first_at ON deferrals (first_at);

-- `expired`: Kafka kept a message for longer than Postgres keeps runs, so nobody can say whether it was executed.
ALTER TABLE dead_letters
    DROP CONSTRAINT dead_letters_reason_check,
    ADD CONSTRAINT dead_letters_reason_check CHECK (reason IN
        ('exhausted', 'killed_workers', 'unknown_handler', 'too_large', 'unreadable', 'expired')),
    -- When the copy was put onto the pool's dead-letter topic.
    ADD COLUMN published_at timestamptz;
CREATE INDEX dead_letters_unpublished ON dead_letters (id) WHERE published_at IS NULL;
CREATE INDEX workers_alive ON workers (heartbeat_at) WHERE dead_at IS NULL AND stopped_at IS NULL;
CREATE INDEX claims_by_claimed_at ON claims USING brin (claimed_at);
