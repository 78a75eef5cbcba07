package templates

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/templates/tfvars"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/readme"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// nameTries bounds the number of names that the server tries for a version without one.
const nameTries = 5

func (s *Service) createVersion(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	org, err := s.organization(r)
	if err != nil {
		return err
	}
	var req sdk.CreateTemplateVersionRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := checkVersionRequest(req); err != nil {
		return err
	}
	// Those who manage one template may add versions to it.
	target := rbac.Of(rbac.TemplateVersion, actor.UserID).In(org.ID)
	if req.TemplateID != nil && *req.TemplateID == uuid.Nil { // clients in Go that cannot omit the field send zeros for "none"
		req.TemplateID = nil
	}
	if req.TemplateID != nil {
		t, err := s.opts.DB.GetTemplate(ctx, *req.TemplateID)
		if database.IsNotFound(err) || err == nil &&
			(t.OrganizationID != org.ID || actor.May(rbac.Read, object(t)) != nil) {
			return fault.New(fault.Invalid, "The template does not exist.").WithField("template_id", "does not exist")
		}
		if err != nil {
			return fmt.Errorf("read template: %w", err)
		}
		target = object(t).As(rbac.TemplateVersion)
	}
	if err := actor.May(rbac.Create, target); err != nil {
		return err
	}
	var id uuid.UUID
	for try := 1; ; try++ {
		name := req.Name
		if name == "" {
			name = newVersionName()
		}
		err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
			id, err = s.insertVersion(ctx, q, org, actor, name, req)
			return err
		})
		if !database.IsUniqueViolation(err, "template_versions_name") {
			break
		}
		if req.Name != "" || try == nameTries {
			return fault.New(fault.Conflict, "The template already has a version named %q.", name).
				WithField("name", "is taken")
		}
	}
	if err != nil {
		return fmt.Errorf("create template version: %w", err)
	}
	return s.writeVersion(w, r, http.StatusCreated, id)
}

func checkVersionRequest(req sdk.CreateTemplateVersionRequest) error {
	if req.Name != "" {
		if err := CheckVersionName(req.Name); err != nil {
			return err
		}
	}
	refused := fault.New(fault.Invalid, "The template version is invalid.")
	if req.ExampleID != "" && req.FileID != uuid.Nil {
		refused.WithField("example_id", "cannot be given together with file_id")
	}
	if req.StorageMethod != "" && req.StorageMethod != sdk.StorageFile {
		refused.WithField("storage_method", "must be "+sdk.StorageFile)
	}
	if !slices.Contains([]string{"", sdk.ProvisionerTerraform, "echo"}, req.Provisioner) {
		refused.WithField("provisioner", "must be "+sdk.ProvisionerTerraform)
	}
	if len(req.Message) > maxMessage || strings.ContainsRune(req.Message, 0) {
		refused.WithField("message", fmt.Sprintf("must be text of at most %d bytes", maxMessage))
	}
	seen := map[string]bool{}
	for _, v := range req.UserVariableValues {
		if v.Name == "" || seen[v.Name] || strings.ContainsRune(v.Name+v.Value, 0) {
			refused.WithField("user_variable_values",
				fmt.Sprintf("%q is empty, given twice or holds a NUL character", v.Name))
		}
		seen[v.Name] = true
	}
	if len(refused.Fields) > 0 {
		return refused
	}
	return nil
}

// insertVersion writes the version, the values of its variables and its import job.
func (s *Service) insertVersion(ctx context.Context, q *dbsqlc.Queries, org dbsqlc.Organization, actor rbac.Actor, name string, req sdk.CreateTemplateVersionRequest) (uuid.UUID, error) {
	if err := holdOrganization(ctx, q, org.ID); err != nil {
		return uuid.Nil, err
	}
	if req.ExampleID != "" {
		var err error
		if req.FileID, err = storeExample(ctx, q, actor, req.ExampleID); err != nil {
			return uuid.Nil, err
		}
	}
	file, err := q.GetTemplateFile(ctx, req.FileID)
	if database.IsNotFound(err) || err == nil && actor.May(rbac.Read, rbac.Of(rbac.File, file.CreatedBy)) != nil {
		return uuid.Nil, fault.New(fault.Invalid, "The file does not exist: upload the source first.").
			WithField("file_id", "does not exist")
	}
	if err != nil {
		return uuid.Nil, err
	}
	values, err := withFileValues(ctx, q, req.FileID, req.UserVariableValues)
	if err != nil {
		return uuid.Nil, err
	}
	if req.TemplateID != nil {
		t, err := q.GetTemplate(ctx, *req.TemplateID)
		if database.IsNotFound(err) {
			return uuid.Nil, fault.New(fault.Invalid, "The template does not exist.").
				WithField("template_id", "does not exist")
		}
		if err != nil {
			return uuid.Nil, err
		}
		if values, err = withActiveValues(ctx, q, t, values); err != nil {
			return uuid.Nil, err
		}
	}
	id := uuid.New()
	job, err := s.opts.Jobs.Insert(ctx, q, jobs.NewJob{
		Kind: string(sdk.JobTemplateImport), Org: org.ID, Initiator: actor.UserID, FileID: req.FileID,
		Input: importInput{TemplateVersionID: id}, Tags: req.Tags,
	})
	if err != nil {
		return uuid.Nil, err
	}
	made, err := q.InsertTemplateVersion(ctx, dbsqlc.InsertTemplateVersionParams{
		ID: id, OrganizationID: org.ID, TemplateID: req.TemplateID, JobID: job.ID, Name: name, Message: req.Message,
		CreatedBy: actor.UserID,
	})
	if err != nil {
		return uuid.Nil, err
	}
	if err := audit.Record(ctx, q, audit.OfTemplateVersion(dbsqlc.TemplateVersion{}, made)); err != nil {
		return uuid.Nil, err
	}
	for _, v := range values {
		// Treat it as a secret until the import reports otherwise.
		if err := q.UpsertTemplateVersionVariable(ctx, dbsqlc.UpsertTemplateVersionVariableParams{
			TemplateVersionID: id, Name: v.Name, Value: v.Value, Sensitive: true, Given: new(true),
		}); err != nil {
			return uuid.Nil, err
		}
	}
	return id, nil
}

// importInput is what an import job keeps in addition to its version's rows.
type importInput struct {
	TemplateVersionID uuid.UUID `json:"template_version_id"`
}

// withFileValues adds the values in the source's own files, such as terraform.tfvars.
func withFileValues(
	ctx context.Context, q *dbsqlc.Queries, file uuid.UUID, given []sdk.VariableValue,
) ([]sdk.VariableValue, error) {
	source, err := q.GetFile(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	found, err := tfvars.Parse(source.Data)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(given)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !slices.ContainsFunc(given, func(v sdk.VariableValue) bool { return v.Name == name }) {
			out = append(out, sdk.VariableValue{Name: name, Value: found[name]})
		}
	}
	return out, nil
}

// withActiveValues adds the values that the active version was given: users cannot read the sensitive ones and so
// cannot give them again.
func withActiveValues(
	ctx context.Context, q *dbsqlc.Queries, t dbsqlc.Template, values []sdk.VariableValue,
) ([]sdk.VariableValue, error) {
	rows, err := q.ListTemplateVersionVariables(ctx, t.ActiveVersionID)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(values)
	for _, row := range rows {
		again := slices.ContainsFunc(values, func(v sdk.VariableValue) bool { return v.Name == row.Name })
		if given(row) && !again {
			out = append(out, sdk.VariableValue{Name: row.Name, Value: row.Value})
		}
	}
	return out, nil
}

// version returns the version in the path if the actor may perform the action on it.
func (s *Service) version(r *http.Request, action rbac.Action) (dbsqlc.TemplateVersion, error) {
	id, err := httpapi.PathUUID(r, "templateversion")
	if err != nil {
		return dbsqlc.TemplateVersion{}, err
	}
	httpapi.AddGuard(r.Context(), func(ctx context.Context, actor rbac.Actor) error {
		_, err := s.allowedVersion(ctx, actor, id, action)
		return err
	})
	return s.allowedVersion(r.Context(), httpapi.ActorFrom(r.Context()), id, action)
}

// allowedVersion returns a version if the actor may perform the action on it.
func (s *Service) allowedVersion(
	ctx context.Context, actor rbac.Actor, id uuid.UUID, action rbac.Action,
) (dbsqlc.TemplateVersion, error) {
	v, object, err := s.findVersion(ctx, id)
	if err != nil {
		return v, err
	}
	return v, actor.May(action, object)
}

// findVersion returns a version, and the version as an object of permissions.
func (s *Service) findVersion(ctx context.Context, id uuid.UUID) (dbsqlc.TemplateVersion, rbac.Object, error) {
	row, err := s.opts.DB.GetSharedTemplateVersion(ctx, id)
	if err != nil {
		return row.TemplateVersion, rbac.Object{}, lookup.Fault(err, rbac.TemplateVersion, "read template version")
	}
	v := row.TemplateVersion
	object := rbac.Of(rbac.TemplateVersion, v.CreatedBy).In(v.OrganizationID).SharedWith(row.Sharing)
	if v.TemplateID != nil {
		object = object.WithID(*v.TemplateID)
	}
	return v, object, nil
}

// versionsJSON returns versions with their jobs, as the API shows them; the number of queries does not depend on the
// number of versions.
func (s *Service) versionsJSON(
	ctx context.Context, rows []dbsqlc.ListTemplateVersionRowsRow,
) ([]sdk.TemplateVersion, error) {
	ids := make([]uuid.UUID, len(rows))
	for i, row := range rows {
		ids[i] = row.TemplateVersion.JobID
	}
	shown, matched, err := s.opts.Jobs.Show(ctx, s.opts.DB.Queries, ids...)
	if err != nil {
		return nil, fmt.Errorf("show import jobs: %w", err)
	}
	out := make([]sdk.TemplateVersion, len(rows))
	for i, row := range rows {
		v := row.TemplateVersion
		out[i] = sdk.TemplateVersion{
			ID: v.ID, TemplateID: v.TemplateID, OrganizationID: v.OrganizationID, CreatedAt: v.CreatedAt,
			UpdatedAt: v.UpdatedAt, Name: v.Name,
			Message: v.Message, Job: shown[v.JobID], Readme: v.Readme, ReadmeMetadata: readmeMetadata(v.Readme),
			Archived:         v.Archived,
			CreatedBy:        sdk.MinimalUser{ID: v.CreatedBy, Username: row.Creator, Name: row.CreatorName},
			HasExternalAgent: row.ExternalAgent,
		}
		if m, ok := matched[v.JobID]; ok {
			out[i].MatchedProvisioners = &m
		}
	}
	return out, nil
}

// readmeMetadata returns what a README says about its template, as far as a template can have it.
func readmeMetadata(text string) sdk.ReadmeMetadata {
	found, _ := readme.Parse(text)
	var m sdk.ReadmeMetadata
	if checkText("display_name", found.DisplayName) == nil {
		m.DisplayName = found.DisplayName
	}
	if checkText("description", found.Description) == nil {
		m.Description = found.Description
	}
	// Other values are files beside the README, or addresses of other hosts, which pages do not load.
	if rooted := strings.HasPrefix(found.Icon, "/icon/") || strings.HasPrefix(found.Icon, "/emojis/"); rooted &&
		checkText("icon", found.Icon) == nil {
		m.Icon = found.Icon
	}
	return m
}

func (s *Service) writeVersion(w http.ResponseWriter, r *http.Request, status int, id uuid.UUID) error {
	rows, err := s.opts.DB.ListTemplateVersionRows(r.Context(),
		dbsqlc.ListTemplateVersionRowsParams{Ids: []uuid.UUID{id}, IncludeArchived: true})
	if err != nil {
		return fmt.Errorf("read template version: %w", err)
	}
	if len(rows) == 0 {
		return rbac.NotFound(rbac.TemplateVersion)
	}
	shown, err := s.versionsJSON(r.Context(), rows)
	if err != nil {
		return err
	}
	return httpapi.Write(w, status, shown[0])
}

func (s *Service) getVersion(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Read)
	if err != nil {
		return err
	}
	return s.writeVersion(w, r, http.StatusOK, v.ID)
}

func (s *Service) getVersionByName(w http.ResponseWriter, r *http.Request) error {
	t, err := s.template(r, rbac.Read)
	if err != nil {
		return err
	}
	return s.writeNamedVersion(w, r, t)
}

func (s *Service) getVersionByNames(w http.ResponseWriter, r *http.Request) error {
	t, err := s.templateByName(r)
	if err != nil {
		return err
	}
	return s.writeNamedVersion(w, r, t)
}

// getPreviousVersion answers with the version that was created before the one in the path.
func (s *Service) getPreviousVersion(w http.ResponseWriter, r *http.Request) error {
	t, err := s.templateByName(r)
	if err != nil {
		return err
	}
	v, err := s.opts.DB.GetTemplateVersionByName(r.Context(), dbsqlc.GetTemplateVersionByNameParams{
		TemplateID: &t.ID, Name: r.PathValue("versionname"),
	})
	if err != nil {
		return lookup.Fault(err, rbac.TemplateVersion, "look up template version")
	}
	previous, err := s.opts.DB.GetPreviousTemplateVersion(r.Context(), v.ID)
	if database.IsNotFound(err) {
		return fault.New(fault.NotFound, "Version %q is the first of its template.", v.Name)
	}
	if err != nil {
		return fmt.Errorf("look up previous version: %w", err)
	}
	return s.writeVersion(w, r, http.StatusOK, previous)
}

func (s *Service) writeNamedVersion(w http.ResponseWriter, r *http.Request, t dbsqlc.Template) error {
	v, err := s.opts.DB.GetTemplateVersionByName(r.Context(), dbsqlc.GetTemplateVersionByNameParams{
		TemplateID: &t.ID, Name: r.PathValue("versionname"),
	})
	if err != nil {
		return lookup.Fault(err, rbac.TemplateVersion, "look up template version")
	}
	return s.writeVersion(w, r, http.StatusOK, v.ID)
}

func (s *Service) listVersions(w http.ResponseWriter, r *http.Request) error {
	t, err := s.template(r, rbac.Read)
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(r, "limit", 0, 1000)
	if err != nil {
		return err
	}
	after, err := httpapi.AfterID(r, func(id uuid.UUID) (bool, error) {
		v, err := s.opts.DB.GetTemplateVersion(r.Context(), id)
		if database.IsNotFound(err) {
			return false, nil
		}
		return v.TemplateID != nil && *v.TemplateID == t.ID, err
	})
	if err != nil {
		return err
	}
	offset, err := httpapi.QueryInt(r, "offset", 0, 1<<30)
	if err != nil {
		return err
	}
	archived, err := httpapi.QueryBool(r, "include_archived")
	if err != nil {
		return err
	}
	terms, err := httpapi.ParseSearch(r.URL.Query().Get("q"), "name", "search")
	if err != nil {
		return err
	}
	sort := r.URL.Query().Get("sort")
	if sort != "" && sort != "created" {
		return fault.New(fault.Invalid, "Versions cannot be sorted by %q.", sort).
			WithField("sort", "must be created, or absent")
	}
	rows, err := s.opts.DB.ListTemplateVersionRows(r.Context(), dbsqlc.ListTemplateVersionRowsParams{
		TemplateID: &t.ID, IncludeArchived: archived, Search: cmp.Or(terms["name"], terms["search"], terms[""]),
		NewestFirst: sort != "",
		PageLimit:   int32(limit), PageOffset: int32(offset), AfterID: after,
	})
	if err != nil {
		return fmt.Errorf("list template versions: %w", err)
	}
	shown, err := s.versionsJSON(r.Context(), rows)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, shown)
}

func (s *Service) updateVersion(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Update)
	if err != nil {
		return err
	}
	var req sdk.UpdateTemplateVersionRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := checkVersionRequest(sdk.CreateTemplateVersionRequest{
		Name: req.Name, Message: or(req.Message, ""),
	}); err != nil {
		return err
	}
	p := dbsqlc.UpdateTemplateVersionParams{ID: v.ID, Name: v.Name, Message: or(req.Message, v.Message)}
	if req.Name != "" {
		p.Name = req.Name
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		after, err := q.UpdateTemplateVersion(r.Context(), p)
		if err != nil {
			return err
		}
		return audit.Record(r.Context(), q, audit.OfTemplateVersion(v, after))
	})
	if err != nil {
		if database.IsUniqueViolation(err, "template_versions_name") {
			return fault.New(fault.Conflict, "The template already has a version named %q.", req.Name).
				WithField("name", "is taken")
		}
		return fmt.Errorf("update template version: %w", err)
	}
	return s.writeVersion(w, r, http.StatusOK, v.ID)
}

func (s *Service) cancelVersion(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Update)
	if err != nil {
		return err
	}
	if err := s.opts.Jobs.Cancel(r.Context(), v.JobID, audit.OfTemplateVersion(v, v)); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The import is being canceled."})
}

func (s *Service) versionLogs(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Read)
	if err != nil {
		return err
	}
	return s.opts.Jobs.ServeLogs(w, r, v.JobID)
}

// Parameters returns the parameters that a version asks for when every answer is the default, in display order.
func Parameters(ctx context.Context, q *dbsqlc.Queries, version uuid.UUID) ([]sdk.TemplateVersionParameter, error) {
	definitions, err := Definitions(ctx, q, version)
	if err != nil {
		return nil, err
	}
	out := []sdk.TemplateVersionParameter{}
	for _, d := range definitions {
		if !d.Conditional {
			out = append(out, d.TemplateVersionParameter)
		}
	}
	return out, nil
}

// Presets returns a version's presets, the default first.
func Presets(ctx context.Context, q *dbsqlc.Queries, version uuid.UUID) ([]sdk.Preset, error) {
	rows, err := q.ListTemplateVersionPresets(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("list presets: %w", err)
	}
	out := make([]sdk.Preset, len(rows))
	for i, row := range rows {
		out[i] = sdk.Preset{
			ID: row.ID, Name: row.Name, Description: row.Description, Icon: row.Icon, Default: row.IsDefault,
		}
		if err := json.Unmarshal(row.Parameters, &out[i].Parameters); err != nil {
			return nil, fmt.Errorf("decode preset %s: %w", row.Name, err)
		}
		if row.Prebuilds != nil {
			var p policy.Prebuilds
			if err := json.Unmarshal(row.Prebuilds, &p); err != nil {
				return nil, fmt.Errorf("decode prebuilds of preset %s: %w", row.Name, err)
			}
			out[i].DesiredPrebuildInstances = &p.Instances
		}
	}
	return out, nil
}

func (s *Service) listParameters(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Read)
	if err != nil {
		return err
	}
	out, err := Parameters(r.Context(), s.opts.DB.Queries, v.ID)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) listPresets(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Read)
	if err != nil {
		return err
	}
	out, err := Presets(r.Context(), s.opts.DB.Queries, v.ID)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) listResources(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Read)
	if err != nil {
		return err
	}
	return s.writeResources(w, r, v.JobID)
}

func (s *Service) writeResources(w http.ResponseWriter, r *http.Request, job uuid.UUID) error {
	byJob, err := s.opts.Agents.Resources(r.Context(), s.opts.DB.Queries, map[uuid.UUID]agents.Place{job: {}})
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.List[sdk.WorkspaceResource](byJob[job]))
}

func (s *Service) listVariables(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Update)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListTemplateVersionVariables(r.Context(), v.ID)
	if err != nil {
		return fmt.Errorf("list variables: %w", err)
	}
	out := make([]sdk.TemplateVersionVariable, len(rows))
	for i, row := range rows {
		out[i] = sdk.TemplateVersionVariable{
			Name: row.Name, Description: row.Description, Type: row.Type, Value: row.Value,
			DefaultValue: row.DefaultValue, Required: row.Required, Sensitive: row.Sensitive,
		}
		if row.Sensitive {
			out[i].Value, out[i].DefaultValue = "", ""
		}
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// listExternalAuth lists the logins that the version asks for, and whether the caller has them.
func (s *Service) listExternalAuth(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Read)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListTemplateVersionExternalAuth(r.Context(), v.ID)
	if err != nil {
		return fmt.Errorf("list external auth: %w", err)
	}
	out, err := s.opts.ExternalAuth.Describe(r.Context(), httpapi.ActorFrom(r.Context()).UserID, rows)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}
