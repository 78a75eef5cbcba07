-- name: InsertTemplate :one
INSERT INTO templates (id, organization_id, name, display_name, description, icon, active_version_id, default_ttl_seconds, require_active_version, created_by, sharing)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
RETURNING *;

-- name: GetTemplate :one
SELECT * FROM templates WHERE id = $1 AND deleted_at IS NULL;

-- name: LockTemplate :one
-- Locks a template while it is changed or deleted.
SELECT * FROM templates WHERE id = $1 AND deleted_at IS NULL FOR UPDATE;

-- name: HoldTemplate :one
-- Locks a template while a workspace is created from it, so that it is not deleted meanwhile.
SELECT * FROM templates WHERE id = $1 AND deleted_at IS NULL FOR SHARE;

-- name: GetTemplateByName :one
SELECT * FROM templates WHERE organization_id = $1 AND lower(name) = lower(sqlc.arg(name)::text) AND deleted_at IS NULL;

-- name: ListTemplateRows :many
-- Lists everything that the JSON of templates shows. If ids is null, it lists all that match the filters.
SELECT sqlc.embed(t), sqlc.embed(p), u.username AS creator, o.name AS organization_name, o.display_name AS organization_display_name,
	(SELECT count(DISTINCT w.owner_id) FROM workspaces w WHERE w.template_id = t.id AND w.deleted_at IS NULL) AS active_users
FROM templates t
JOIN template_policies p ON p.template_id = t.id
JOIN users u ON u.id = t.created_by
JOIN organizations o ON o.id = t.organization_id
WHERE t.deleted_at IS NULL
	AND (sqlc.narg(ids)::uuid[] IS NULL OR t.id = ANY (sqlc.narg(ids)::uuid[]))
	AND (sqlc.narg(organization_id)::uuid IS NULL OR t.organization_id = sqlc.narg(organization_id))
	AND (sqlc.arg(exact_name)::text = '' OR lower(t.name) = lower(sqlc.arg(exact_name)::text))
	AND (sqlc.arg(search)::text = '' OR strpos(lower(t.name), lower(sqlc.arg(search)::text)) > 0
		OR strpos(lower(t.display_name), lower(sqlc.arg(search)::text)) > 0)
	AND (sqlc.narg(author_id)::uuid IS NULL OR t.created_by = sqlc.narg(author_id))
	AND (sqlc.arg(author)::text = '' OR lower(u.username) = lower(sqlc.arg(author)::text))
	AND (sqlc.narg(deprecated)::boolean IS NULL OR (t.deprecated <> '') = sqlc.narg(deprecated))
	AND (sqlc.narg(external)::boolean IS NULL OR sqlc.narg(external) = EXISTS (SELECT FROM template_versions v
		JOIN workspace_resources r ON r.job_id = v.job_id WHERE v.id = t.active_version_id AND r.type = 'coder_external_agent'))
	AND (sqlc.arg(extent_all)::boolean OR t.organization_id = ANY (sqlc.arg(extent_organizations)::uuid[])
		OR t.organization_id = ANY (sqlc.arg(extent_member)::uuid[]) AND t.sharing ?| sqlc.arg(extent_principals)::text[])
	AND (sqlc.narg(extent_only)::uuid[] IS NULL OR t.id = ANY (sqlc.narg(extent_only)::uuid[]))
ORDER BY CASE WHEN sqlc.arg(sort)::text = 'users' THEN (SELECT count(DISTINCT w.owner_id) FROM workspaces w WHERE w.template_id = t.id AND w.deleted_at IS NULL) END DESC,
	CASE WHEN sqlc.arg(sort)::text = 'updated' THEN t.updated_at END DESC,
	CASE WHEN sqlc.arg(sort)::text = 'name' THEN natural_key(t.name) END,
	lower(t.name), t.id;

-- name: UpdateTemplate :one
UPDATE templates SET name = $2, display_name = $3, description = $4, icon = $5, default_ttl_seconds = $6, require_active_version = $7,
	deprecated = $8, updated_at = now()
WHERE id = $1 AND deleted_at IS NULL
RETURNING *;

-- name: UpdateTemplateActiveVersion :exec
UPDATE templates SET active_version_id = $2, updated_at = now() WHERE id = $1;

-- name: SoftDeleteTemplate :exec
UPDATE templates SET deleted_at = now(), updated_at = now() WHERE id = $1;

-- name: ListTemplateWorkspaceNames :many
-- Lists the workspaces that still use a template, as "owner/name".
SELECT (u.username || '/' || w.name)::text AS name FROM workspaces w JOIN users u ON u.id = w.owner_id
WHERE w.template_id = $1 AND w.deleted_at IS NULL
ORDER BY u.username, w.name LIMIT 20;

-- name: InsertTemplateVersion :one
INSERT INTO template_versions (id, organization_id, template_id, job_id, name, message, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING *;

-- name: GetTemplateVersion :one
SELECT * FROM template_versions WHERE id = $1;

-- name: GetSharedTemplateVersion :one
-- Returns a version, and how its template is shared; null without a template.
SELECT sqlc.embed(v), t.sharing FROM template_versions v LEFT JOIN templates t ON t.id = v.template_id WHERE v.id = $1;

-- name: GetTemplateVersionByJob :one
SELECT * FROM template_versions WHERE job_id = $1;

-- name: GetTemplateVersionByName :one
SELECT * FROM template_versions WHERE template_id = $1 AND lower(name) = lower(sqlc.arg(name)::text);

-- name: GetPreviousTemplateVersion :one
-- Returns the version that was created before another one of the same template, archived or not.
SELECT p.id FROM template_versions p JOIN template_versions v ON v.template_id = p.template_id
WHERE v.id = $1 AND (p.created_at, p.id) < (v.created_at, v.id)
ORDER BY p.created_at DESC, p.id DESC LIMIT 1;

-- name: ListTemplateVersionRows :many
-- Lists versions, oldest or newest first: those after one of them, if it is given. A version whose name is the search comes before all
-- others. Give either ids or template_id. A page_limit of 0 means all.
SELECT sqlc.embed(v), u.username AS creator, u.name AS creator_name, j.file_id,
	EXISTS (SELECT FROM workspace_resources r WHERE r.job_id = v.job_id AND r.type = 'coder_external_agent') AS external_agent
FROM template_versions v
JOIN users u ON u.id = v.created_by
JOIN provisioner_jobs j ON j.id = v.job_id
WHERE (sqlc.narg(ids)::uuid[] IS NULL OR v.id = ANY (sqlc.narg(ids)::uuid[]))
	AND (sqlc.narg(template_id)::uuid IS NULL OR v.template_id = sqlc.narg(template_id))
	AND (sqlc.arg(include_archived)::boolean OR NOT v.archived)
	AND (sqlc.arg(search)::text = '' OR strpos(lower(v.name), lower(sqlc.arg(search)::text)) > 0 OR strpos(lower(v.message), lower(sqlc.arg(search)::text)) > 0)
	AND (sqlc.narg(after_id)::uuid IS NULL OR EXISTS (SELECT FROM template_versions a WHERE a.id = sqlc.narg(after_id) AND
		CASE WHEN sqlc.arg(newest_first)::boolean
			THEN (lower(v.name) <> lower(sqlc.arg(search)::text), a.created_at, a.id) > (lower(a.name) <> lower(sqlc.arg(search)::text), v.created_at, v.id)
			ELSE (lower(v.name) <> lower(sqlc.arg(search)::text), v.created_at, v.id) > (lower(a.name) <> lower(sqlc.arg(search)::text), a.created_at, a.id)
		END))
ORDER BY lower(v.name) = lower(sqlc.arg(search)::text) DESC, CASE WHEN sqlc.arg(newest_first)::boolean THEN v.created_at END DESC,
	CASE WHEN sqlc.arg(newest_first)::boolean THEN v.id END DESC, v.created_at, v.id
LIMIT NULLIF(sqlc.arg(page_limit)::int, 0) OFFSET sqlc.arg(page_offset)::int;

-- name: UpdateTemplateVersion :one
UPDATE template_versions SET name = $2, message = $3, updated_at = now() WHERE id = $1 RETURNING *;

-- name: AttachTemplateVersion :execrows
-- Assigns a version to a template, permanently.
UPDATE template_versions SET template_id = $2, updated_at = now() WHERE id = $1 AND template_id IS NULL;

-- name: FinishTemplateVersion :exec
UPDATE template_versions SET readme = $2, names_owner_session_token = $3, names_owner_ssh_private_key = $4,
	names_owner_oidc_access_token = $5, updated_at = now() WHERE id = $1;

-- name: UpsertTemplateVersionVariable :exec
-- Stores a variable of a version: its name and value before the import, its definition with it.
INSERT INTO template_version_variables (template_version_id, name, description, type, value, default_value, required, sensitive, given)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (template_version_id, name) DO UPDATE SET description = EXCLUDED.description, type = EXCLUDED.type, value = EXCLUDED.value,
	default_value = EXCLUDED.default_value, required = EXCLUDED.required, sensitive = EXCLUDED.sensitive, given = EXCLUDED.given;

-- name: DeleteTemplateVersionVariablesExcept :exec
-- Deletes values that were given for variables that the template does not declare.
DELETE FROM template_version_variables WHERE template_version_id = $1 AND name <> ALL (sqlc.arg(names)::text[]);

-- name: ListTemplateVersionVariables :many
SELECT * FROM template_version_variables WHERE template_version_id = $1 ORDER BY name;

-- name: DeleteTemplateVersionParameters :exec
DELETE FROM template_version_parameters WHERE template_version_id = $1;

-- name: InsertTemplateVersionParameter :exec
INSERT INTO template_version_parameters (template_version_id, name, position, definition) VALUES ($1, $2, $3, $4);

-- name: ListTemplateVersionParameters :many
SELECT * FROM template_version_parameters WHERE template_version_id = $1 ORDER BY position, name;

-- name: DeleteTemplateVersionPresets :exec
DELETE FROM template_version_presets WHERE template_version_id = $1;

-- name: InsertTemplateVersionPreset :exec
INSERT INTO template_version_presets (id, template_version_id, name, description, icon, is_default, parameters, prebuilds)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: ListTemplateVersionPresets :many
SELECT * FROM template_version_presets WHERE template_version_id = $1 ORDER BY is_default DESC, name;

-- name: UpsertTemplateVersionExternalAuth :exec
INSERT INTO template_version_external_auth (template_version_id, provider_id, optional) VALUES ($1, $2, $3)
ON CONFLICT (template_version_id, provider_id) DO UPDATE SET optional = EXCLUDED.optional;

-- name: ListTemplateVersionExternalAuth :many
SELECT * FROM template_version_external_auth WHERE template_version_id = $1 ORDER BY provider_id;

-- name: UpsertTemplateVersionTags :exec
INSERT INTO template_version_tags (template_version_id, tags, program) VALUES ($1, $2, $3)
ON CONFLICT (template_version_id) DO UPDATE SET tags = EXCLUDED.tags, program = EXCLUDED.program;

-- name: GetTemplateVersionTags :one
SELECT tags, program FROM template_version_tags WHERE template_version_id = $1;

-- name: GetTemplateJob :one
-- Returns a job of the given kind, for the routes of dry runs.
SELECT * FROM provisioner_jobs WHERE id = $1 AND kind = $2;

-- name: GetTemplateOwnerFacts :one
-- Returns what a template may read about a workspace's owner, without secrets.
SELECT u.id, u.username, u.email, u.name, u.login_type, u.roles, COALESCE(k.public_key, '')::text AS ssh_public_key
FROM users u LEFT JOIN git_ssh_keys k ON k.user_id = u.id
WHERE u.id = $1;

-- name: ListOwnerGroupNames :many
-- Returns the names of a user's groups in an organization, for templates.
SELECT g.name FROM groups g JOIN organization_members m ON m.organization_id = g.organization_id AND m.user_id = sqlc.arg(user_id)::uuid
WHERE g.organization_id = sqlc.arg(organization_id)
	AND (g.id = g.organization_id OR EXISTS (SELECT FROM group_members x WHERE x.group_id = g.id AND x.user_id = m.user_id))
ORDER BY g.id = g.organization_id DESC, lower(g.name);

-- name: GetTemplateFile :one
-- Returns the owner of a file if it exists, without its content.
SELECT id, created_by FROM files WHERE id = $1;

-- name: GetOrganizationByReference :one
-- Returns an organization by its id, its name, or "default". "coder", as Coder calls its default organization, means the default one unless an
-- organization has that name.
SELECT * FROM organizations
WHERE deleted_at IS NULL AND (id::text = lower(sqlc.arg(reference)::text) OR lower(name) = lower(sqlc.arg(reference)::text)
	OR (sqlc.arg(reference)::text IN ('default', 'coder') AND is_default))
ORDER BY sqlc.arg(reference)::text = 'coder' AND lower(name) <> 'coder', is_default DESC LIMIT 1;

-- name: CountParameterValues :many
-- Counts the workspaces of a template that have a value of a parameter.
SELECT p.name, p.value, count(*) AS workspaces FROM workspaces w JOIN workspace_build_parameters p ON p.workspace_build_id = w.latest_build_id
WHERE w.template_id = $1 AND w.deleted_at IS NULL GROUP BY p.name, p.value ORDER BY p.name, p.value;
