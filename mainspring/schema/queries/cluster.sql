-- name: create_cluster
INSERT INTO cluster (shards) VALUES ($1) ON CONFLICT DO NOTHING RETURNING shards;

-- name: create_shards
INSERT INTO shards (shard) SELECT generate_series(0, $1::integer - 1);

-- name: cluster_exists
SELECT to_regclass('cluster') IS NOT NULL;

-- name: cluster_shards
SELECT shards FROM cluster;
