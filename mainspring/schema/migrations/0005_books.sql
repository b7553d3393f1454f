-- The books: the ledger also says how many messages arrived, and what became of those that did not.
--
-- A row is *short* while published - written_off > claimed + repaired. Written so that the value which old rows get
-- for written_off cannot overflow.

ALTER TABLE ledger
    -- Won by claims; counted by the bookkeeper, which may be there before the leader: then published is still 0.
    ADD COLUMN claimed      integer NOT NULL DEFAULT 0 CHECK (claimed >= 0),
    -- Never arrived, and published again for the same second: the copies are counted in published and claimed.
    ADD COLUMN repaired     integer NOT NULL DEFAULT 0 CHECK (repaired >= 0),
    -- Will not arrive, and nobody waits for them any more. What was published before there were books is not judged.
    ADD COLUMN written_off  integer NOT NULL DEFAULT 2147483647 CHECK (written_off >= 0),
    ADD COLUMN repairs      smallint NOT NULL DEFAULT 0 CHECK (repairs >= 0),
    -- When something was last published for it. A second can be filled long after it has passed.
    ADD COLUMN published_at timestamptz NOT NULL DEFAULT now(),
    -- Looked at no sooner than some patience after this.
    ADD COLUMN look_at      timestamptz NOT NULL DEFAULT now(),
    DROP CONSTRAINT ledger_published_check,
    ADD CONSTRAINT ledger_published_check CHECK (published > 0 OR (published = 0 AND claimed > 0));
ALTER TABLE ledger ALTER COLUMN written_off SET DEFAULT 0;

-- Balanced rows are not in it, so a look costs what is short and not what is kept.
CREATE INDEX ledger_short ON ledger (look_at) WHERE published - written_off > claimed + repaired;

-- Leaders add to a row without knowing of the books.
CREATE FUNCTION mark_published() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.published_at := now();
    NEW.look_at := now();
    RETURN NEW;
END $$;
CREATE TRIGGER ledger_mark_published BEFORE UPDATE OF published ON ledger
    FOR EACH ROW EXECUTE FUNCTION mark_published();

-- How far the tallies of the claims have been counted into the ledger.
CREATE TABLE books (
    only_row        boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    counted_through timestamptz NOT NULL DEFAULT now()
);
INSERT INTO books DEFAULT VALUES;

-- What a short second is expanded with.
CREATE INDEX jobs_one_offs ON jobs (shard, run_at) WHERE kind = 'at' AND status <> 'completed';
CREATE INDEX failures_by_recorded_at ON failures USING brin (recorded_at);
CREATE INDEX arrivals_by_released_at ON arrivals USING brin (released_at);
CREATE INDEX dead_letters_redriven ON dead_letters (redriven_at) WHERE redriven_at IS NOT NULL;
