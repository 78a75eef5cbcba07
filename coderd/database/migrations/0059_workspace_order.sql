-- +goose Up

-- Compares names as people do: numbers in them count as numbers. Names of workspaces have at most 32 characters.
CREATE FUNCTION natural_key(name text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
	SELECT string_agg(CASE WHEN part[1] ~ '^[0-9]' THEN lpad(part[1], 32, '0') ELSE part[1] END, '' ORDER BY n)
	FROM regexp_matches(lower(name), '[0-9]+|[^0-9]+', 'g') WITH ORDINALITY AS parts (part, n)
$$;

-- The orders of the list of workspaces that a user can choose, beside workspaces_list.
CREATE INDEX workspaces_by_name ON workspaces (natural_key(name), owner_key, lower(name), id) WHERE latest_build_id IS NOT NULL AND deleted_at IS NULL AND dormant_at IS NULL;
CREATE INDEX workspaces_by_owner ON workspaces (owner_key, lower(name), id) WHERE latest_build_id IS NOT NULL AND deleted_at IS NULL AND dormant_at IS NULL;
CREATE INDEX workspaces_by_creation ON workspaces (created_at DESC, owner_key, lower(name), id) WHERE latest_build_id IS NOT NULL AND deleted_at IS NULL AND dormant_at IS NULL;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
