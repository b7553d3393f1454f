-- What the HTTP API keeps besides jobs.

-- What a request with an Idempotency-Key did, written in the transaction of the change itself. A batch has one row for
-- each of its chunks.
CREATE TABLE idempotency_keys (
    tenant_id       integer NOT NULL REFERENCES tenants,
    key             text COLLATE "C" NOT NULL CHECK (key <> '' AND length(key) <= 200),
    chunk           integer NOT NULL DEFAULT 0 CHECK (chunk >= 0),
    -- SHA-256 of method, path and body: the same key with another request is a mistake.
    request_hash    bytea NOT NULL CHECK (octet_length(request_hash) = 32),
    status          smallint NOT NULL CHECK (status BETWEEN 200 AND 299),
    answer          bytea NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, key, chunk)
);
CREATE INDEX idempotency_keys_by_created_at ON idempotency_keys (created_at);

-- What payloads of a handler must look like. json, not jsonb: as it was written.
CREATE TABLE payload_schemas (
    tenant_id       integer NOT NULL REFERENCES tenants,
    handler         text COLLATE "C" NOT NULL CHECK (handler <> '' AND length(handler) <= 200),
    schema          json NOT NULL CHECK (octet_length(schema::text) <= 100000),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, handler)
);

-- A tenant's jobs page by page, and how many they are.
CREATE INDEX jobs_by_tenant ON jobs (tenant_id, id) WHERE status <> 'deleted';
