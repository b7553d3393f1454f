-- name: today
SELECT (now() AT TIME ZONE 'UTC')::date;

-- Every table named like a day of one of the parents ($1), and where it stands: attached, on its way out, or alone.
-- name: day_tables
SELECT
    parent.name AS parent,
    right(child.relname, 8) AS day,
    CASE WHEN link.inhrelid IS NULL THEN 'detached'
         WHEN link.inhdetachpending THEN 'detaching'
         ELSE 'attached' END AS state
FROM unnest($1::text[]) AS parent (name)
JOIN pg_class AS child
  ON child.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = parent.name::regclass)
 AND child.relkind = 'r'
 AND child.relname ~ ('^' || parent.name || '_[0-9]{8}$')
LEFT JOIN pg_inherits AS link ON link.inhrelid = child.oid
ORDER BY day, parent;

-- name: lock_partition_maker
SELECT pg_advisory_xact_lock($1);
