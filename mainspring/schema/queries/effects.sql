-- Waits for another attempt at the same occurrence that is inside its transaction; none is returned if that one commits.
-- name: record_effect
INSERT INTO effects (job_id, scheduled_at, attempt) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING
RETURNING attempt;

-- name: effect_attempt
SELECT attempt FROM effects WHERE job_id = $1 AND scheduled_at = $2;
