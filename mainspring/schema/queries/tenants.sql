-- Tenants and their limits, changed on the database alone: mainspring/registry/tenants.py.

-- name: list_tenants
SELECT id, name, maximum_jobs, maximum_running, requests_per_second, created_at FROM tenants ORDER BY name;

-- name: insert_tenant
INSERT INTO tenants (name, maximum_jobs, maximum_running, requests_per_second) VALUES ($1, $2, $3, $4)
RETURNING id, name, maximum_jobs, maximum_running, requests_per_second, created_at;

-- Locked, so that two who change it write their audit rows one after the other.
-- name: lock_tenant
SELECT id, name, maximum_jobs, maximum_running, requests_per_second, created_at FROM tenants
WHERE name = $1 FOR NO KEY UPDATE;

-- name: update_tenant
UPDATE tenants SET maximum_jobs = $2, maximum_running = $3, requests_per_second = $4 WHERE id = $1
RETURNING id, name, maximum_jobs, maximum_running, requests_per_second, created_at;
