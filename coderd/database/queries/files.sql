-- name: InsertFile :one
-- Stores a file once for each user and content, and updates the time of its upload. inserted reports whether it is new.
INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (sha256, created_by) DO UPDATE SET mimetype = excluded.mimetype, created_at = now()
RETURNING id, (xmax = 0)::boolean AS inserted;

-- name: GetFile :one
SELECT * FROM files WHERE id = $1;
