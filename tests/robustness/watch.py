"""What Postgres committed, all along: every version of every job and timer, and every move of a mark.

Triggers of this database's own copy each row that is written; the server keeps the time of each commit. So
an operation whose answer was lost is no riddle, and what the product itself changes is there too.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import asyncpg

from tests.acceptance.scheduler.observer import Observer, ShardRow

SETUP = """
CREATE TABLE done (job_id text, scheduled_at timestamptz, attempt integer);
CREATE TABLE watched_jobs (number bigint GENERATED ALWAYS AS IDENTITY, changed xid8, row jsonb);
CREATE TABLE watched_timers (LIKE watched_jobs INCLUDING IDENTITY);
CREATE TABLE watched_dependencies (job_id bigint, parent_id bigint);
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO %I (changed, row) VALUES ($1, $2)', TG_ARGV[0])
    USING pg_current_xact_id(), to_jsonb(NEW) - 'body';
    RETURN NULL;
END $$;
CREATE FUNCTION watch_dependencies() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO watched_dependencies VALUES (NEW.job_id, NEW.parent_id);
    RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER INSERT OR UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION watch('watched_jobs');
CREATE TRIGGER watch AFTER INSERT OR UPDATE ON timers FOR EACH ROW EXECUTE FUNCTION watch('watched_timers');
CREATE TRIGGER watch AFTER INSERT ON dependencies FOR EACH ROW EXECUTE FUNCTION watch_dependencies();
"""


class Look(NamedTuple):
    """A shard as it was seen at a moment of the database's clock."""

    at: float
    mark: int
    seen: int
    epoch: int
    leader: str | None


class Watcher(Observer):
    """Keeps every look that shows something new."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.looks: defaultdict[int, list[Look]] = defaultdict(list)

    def _note(self, shard: int, row: ShardRow) -> None:
        super()._note(shard, row)
        looks = self.looks[shard]
        if not looks or looks[-1][1:] != (row.mark, row.seen, row.epoch, row.leader):
            looks.append(Look(self.now, row.mark, row.seen, row.epoch, row.leader))


async def keep_commit_times(server: str) -> None:
    """Takes effect when the server is started again."""
    connection = await asyncpg.connect(server)
    try:
        await connection.execute("ALTER SYSTEM SET track_commit_timestamp = on")
    finally:
        await connection.close()
