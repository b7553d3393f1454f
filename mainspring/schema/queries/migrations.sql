-- name: try_lock_migrations
SELECT pg_try_advisory_lock($1);

-- name: unlock_migrations
SELECT pg_advisory_unlock($1);

-- name: server_version
SELECT current_setting('server_version_num')::integer;

-- name: migration_ledger_exists
SELECT to_regclass('schema_migrations') IS NOT NULL;

-- name: create_migration_ledger
CREATE TABLE IF NOT EXISTS schema_migrations (
    version     integer PRIMARY KEY CHECK (version >= 1),
    name        text NOT NULL UNIQUE,
    sha256      text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: applied_migrations
SELECT version, name, sha256 FROM schema_migrations ORDER BY version;

-- name: record_migration
INSERT INTO schema_migrations (version, name, sha256) VALUES ($1, $2, $3);
