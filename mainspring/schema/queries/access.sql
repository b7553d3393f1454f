-- Who may do what, and who did what: mainspring/registry/audit.py and keys.py, mainspring/api.

-- name: insert_audit
INSERT INTO audit (tenant_id, actor, action, subject, before, after, reason)
VALUES ($1, $2, $3, $4, $5::jsonb, $6::jsonb, $7);

-- Nothing comes back, and nothing is locked, where there is no quota.
-- name: lock_quota
SELECT maximum_jobs FROM tenants WHERE id = $1 AND maximum_jobs IS NOT NULL FOR NO KEY UPDATE;

-- name: count_jobs_up_to
SELECT count(*)::integer FROM (
    SELECT FROM jobs WHERE tenant_id = $1 AND status <> 'deleted' LIMIT $2::integer) AS counted;

-- name: handler_of_job
SELECT handler FROM jobs WHERE tenant_id = $1 AND id = $2;

-- name: handlers_of_jobs
SELECT DISTINCT handler FROM jobs WHERE id = ANY ($1::bigint[]);

-- One look-up for each request: a key that was revoked is refused from the next request on.
-- name: caller_of_key
SELECT key.id, key.name, key.role, key.handlers, key.tenant_id, tenant.name AS tenant, tenant.requests_per_second
FROM api_keys AS key JOIN tenants AS tenant ON tenant.id = key.tenant_id
WHERE key.secret_hash = $1 AND key.revoked_at IS NULL;

-- name: tenant_by_name
SELECT id, name, requests_per_second FROM tenants WHERE name = $1;

-- name: insert_key
INSERT INTO api_keys (tenant_id, name, role, handlers, secret_hash) VALUES ($1, $2, $3, $4, $5)
RETURNING id, tenant_id, name, role, handlers, created_at, revoked_at;

-- name: list_keys
SELECT id, tenant_id, name, role, handlers, created_at, revoked_at FROM api_keys
WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3;

-- The row stays, and with it the name: the audit refers to it.
-- name: revoke_key
UPDATE api_keys SET revoked_at = statement_timestamp() WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL
RETURNING name, role;

-- name: list_audit
SELECT id, at, actor, action, subject, before, after, reason FROM audit
WHERE tenant_id = $1
  AND ($2::text IS NULL OR subject = $2)
  AND ($3::text IS NULL OR actor = $3)
  AND ($4::text IS NULL OR action = $4)
  AND ($5::timestamptz IS NULL OR at >= $5)
  AND ($6::bigint IS NULL OR id < $6)
ORDER BY id DESC LIMIT $7;

-- name: tenant_in_numbers
SELECT name, maximum_jobs, maximum_running, requests_per_second,
       (SELECT count(*) FROM (SELECT FROM jobs WHERE tenant_id = $1 AND status <> 'deleted' LIMIT 10001) AS few) AS jobs
FROM tenants WHERE id = $1;

-- name: insert_idempotency_key
INSERT INTO idempotency_keys (tenant_id, key, chunk, request_hash, status, answer) VALUES ($1, $2, $3, $4, $5, $6);

-- name: read_idempotency_key
SELECT request_hash, status, answer FROM idempotency_keys
WHERE tenant_id = $1 AND key = $2 AND chunk = $3 AND created_at > now() - interval '24 hours';

-- name: forget_idempotency_key
DELETE FROM idempotency_keys
WHERE tenant_id = $1 AND key = $2 AND chunk = $3 AND created_at <= now() - interval '24 hours';

-- name: put_payload_schema
INSERT INTO payload_schemas (tenant_id, handler, schema) VALUES ($1, $2, $3::json)
ON CONFLICT (tenant_id, handler) DO UPDATE SET schema = excluded.schema, updated_at = statement_timestamp();

-- Locked, so that two who change it write their audit rows one after the other.
-- name: lock_payload_schema
SELECT schema FROM payload_schemas WHERE tenant_id = $1 AND handler = $2 FOR UPDATE;

-- name: delete_payload_schema
DELETE FROM payload_schemas WHERE tenant_id = $1 AND handler = $2 RETURNING schema;

-- name: list_payload_schemas
SELECT handler, schema, updated_at FROM payload_schemas
WHERE tenant_id = $1 AND handler > $2 ORDER BY handler LIMIT $3;

-- name: payload_schemas_of
SELECT handler, schema, updated_at FROM payload_schemas WHERE tenant_id = $1 AND handler = ANY ($2::text[]);
