package templates

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func (s *Service) createTemplate(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	org, err := s.organization(r)
	if err != nil {
		return err
	}
	if err := actor.MayCreate(rbac.Of(rbac.Template, uuid.Nil).In(org.ID)); err != nil {
		return err
	}
	var req sdk.CreateTemplateRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	sharing := rbac.Sharing{}
	if !req.DisableEveryoneGroupAccess {
		sharing[org.ID] = rbac.LevelUse
	}
	p := dbsqlc.InsertTemplateParams{
		ID: uuid.New(), OrganizationID: org.ID, Name: req.Name, DisplayName: req.DisplayName,
		Description: req.Description, Icon: req.Icon,
		ActiveVersionID: req.VersionID, RequireActiveVersion: req.RequireActiveVersion, CreatedBy: actor.UserID,
		Sharing: sharing,
	}
	if err := checkTexts(req.Name, req.DisplayName, req.Description, req.Icon); err != nil {
		return err
	}
	if p.DefaultTtlSeconds, err = seconds(req.DefaultTTLMillis, 0); err != nil {
		return err
	}
	if err := checkFixed(req.FixedTemplateSettings); err != nil {
		return err
	}
	if err := checkIdentity(req.TemplateIdentity); err != nil {
		return err
	}
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if err := holdOrganization(ctx, q, org.ID); err != nil {
			return err
		}
		v, job, err := ready(ctx, q, req.VersionID, func(v dbsqlc.TemplateVersion) bool {
			return v.OrganizationID == org.ID &&
				actor.May(rbac.Read, rbac.Of(rbac.TemplateVersion, v.CreatedBy).In(v.OrganizationID)) == nil
		})
		if err != nil {
			return err
		}
		if err := RefuseArchived(v); err != nil {
			return err
		}
		made, err := q.InsertTemplate(ctx, p)
		if err != nil {
			return err
		}
		level := req.MaxPortShareLevel
		if level == nil || *level == "" {
			if level, err = declaredSharing(ctx, q, job.ID); err != nil {
				return err
			}
		}
		if made, err = limitSharing(ctx, q, made, level); err != nil {
			return err
		}
		if made, err = setIdentity(ctx, q, made, req.TemplateIdentity); err != nil {
			return err
		}
		policies, err := setPolicy(ctx, q, p.ID, p.DefaultTtlSeconds, req.TemplatePolicy)
		if err != nil {
			return err
		}
		n, err := q.AttachTemplateVersion(ctx, dbsqlc.AttachTemplateVersionParams{ID: req.VersionID, TemplateID: &p.ID})
		if err == nil && n == 0 {
			return fault.New(fault.Conflict, "This version belongs to another template.").
				WithField("template_version_id", "upload the source again")
		}
		if err != nil {
			return err
		}
		entry := audit.OfTemplate(dbsqlc.Template{}, made)
		maps.Copy(entry.Diff, policies)
		return audit.Record(ctx, q, entry)
	})
	if err != nil {
		return nameTaken(err, req.Name, "create template")
	}
	return s.writeTemplate(w, r, http.StatusCreated, p.ID)
}

// holdOrganization keeps the organization from being deleted until the transaction ends.
func holdOrganization(ctx context.Context, q *dbsqlc.Queries, id uuid.UUID) error {
	if _, err := q.HoldOrganization(ctx, id); err != nil {
		return lookup.Fault(err, rbac.Organization, "hold organization")
	}
	return nil
}

func nameTaken(err error, name, doing string) error {
	if database.IsUniqueViolation(err, "templates_name") {
		return fault.New(fault.Conflict, "A template named %q already exists.", name).WithField("name", "is taken")
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// orders are the orders of a list of templates.
var orders = []sdk.TemplateOrder{sdk.TemplatesByName, sdk.TemplatesByUsers, sdk.TemplatesByUpdated}

func (s *Service) listTemplates(w http.ResponseWriter, r *http.Request) error {
	p := readable(httpapi.ActorFrom(r.Context()))
	if r.PathValue("organization") != "" {
		org, err := s.organization(r)
		if err != nil {
			return err
		}
		p.OrganizationID = &org.ID
	}
	if p.Sort = r.URL.Query().Get("sort"); p.Sort != "" && !slices.Contains(orders, sdk.TemplateOrder(p.Sort)) {
		return fault.New(fault.Invalid, "Templates cannot be sorted by %q.", p.Sort).
			WithField("sort", "must be name, users or updated")
	}
	terms, err := httpapi.ParseSearch(r.URL.Query().Get("q"), "name", "exact_name", "organization", "deprecated",
		"author", "has-ai-task", "has_ai_task", "has-external-agent", "has_external_agent")
	if err != nil {
		return err
	}
	p.ExactName = terms["exact_name"]
	p.Search = strings.TrimSpace(terms["name"] + terms[""])
	if name, ok := terms["organization"]; ok {
		org, err := s.opts.DB.GetOrganizationByReference(r.Context(), name)
		if database.IsNotFound(err) {
			return httpapi.Write(w, http.StatusOK, []sdk.Template{})
		}
		if err != nil {
			return fmt.Errorf("look up organization: %w", err)
		}
		p.OrganizationID = &org.ID
	}
	if err := filterTemplates(r.Context(), &p, terms); err != nil {
		return err
	}
	rows, err := s.opts.DB.ListTemplateRows(r.Context(), p)
	if err != nil {
		return fmt.Errorf("list templates: %w", err)
	}
	out := make([]sdk.Template, len(rows))
	for i, row := range rows {
		out[i] = templateJSON(row)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// filterTemplates handles the terms that exclude templates. No template has an AI task.
func filterTemplates(ctx context.Context, p *dbsqlc.ListTemplateRowsParams, terms map[string]string) (err error) {
	if p.Deprecated, err = httpapi.SearchBool(terms, "deprecated"); err != nil {
		return err
	}
	p.Author = terms["author"]
	if p.Author == sdk.Me {
		id := httpapi.ActorFrom(ctx).UserID
		p.Author, p.AuthorID = "", &id
	}
	for _, key := range []string{"has-external-agent", "has_external_agent"} {
		wanted, err := httpapi.SearchBool(terms, key)
		if err != nil {
			return err
		}
		if wanted != nil {
			p.External = wanted
		}
	}
	for _, key := range []string{"has-ai-task", "has_ai_task"} {
		wanted, err := httpapi.SearchBool(terms, key)
		if err != nil {
			return err
		}
		if wanted != nil && *wanted {
			p.Ids = []uuid.UUID{}
		}
	}
	return nil
}

func templateJSON(row dbsqlc.ListTemplateRowsRow) sdk.Template {
	t := row.Template
	out := sdk.Template{
		ID: t.ID, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, OrganizationID: t.OrganizationID,
		OrganizationName:        row.OrganizationName,
		OrganizationDisplayName: row.OrganizationDisplayName, Name: t.Name, DisplayName: t.DisplayName,
		Description: t.Description, Icon: t.Icon,
		Provisioner: sdk.ProvisionerTerraform, ActiveVersionID: t.ActiveVersionID,
		ActiveUserCount: int(row.ActiveUsers),
		Deprecated:      t.Deprecated != "", DeprecationMessage: t.Deprecated, DefaultTTLMillis: t.DefaultTtlSeconds * 1000,
		CreatedByID: t.CreatedBy, CreatedByName: row.Creator, RequireActiveVersion: t.RequireActiveVersion,
		MaxPortShareLevel:       sdk.AppShare(t.MaxPortShareLevel),
		UseClassicParameterFlow: true, CORSBehavior: corsSimple,
		IdentityAudiences: t.IdentityAudiences, IdentityBuildAudience: t.IdentityBuildAudience,
	}
	showPolicy(&out, row.TemplatePolicy)
	return out
}

// writeTemplate answers with the current template.
func (s *Service) writeTemplate(w http.ResponseWriter, r *http.Request, status int, id uuid.UUID) error {
	rows, err := s.opts.DB.ListTemplateRows(r.Context(),
		dbsqlc.ListTemplateRowsParams{Ids: []uuid.UUID{id}, ExtentAll: true})
	if err != nil {
		return fmt.Errorf("read template: %w", err)
	}
	if len(rows) == 0 {
		return rbac.NotFound(rbac.Template)
	}
	return httpapi.Write(w, status, templateJSON(rows[0]))
}

// Object returns a template as an object of permissions.
func Object(t dbsqlc.Template) rbac.Object { return object(t) }

// object returns the template as an object of permissions.
func object(t dbsqlc.Template) rbac.Object {
	return rbac.Of(rbac.Template, uuid.Nil).In(t.OrganizationID).SharedWith(t.Sharing).WithID(t.ID)
}

// readable returns a query for the templates that the actor may read.
func readable(actor rbac.Actor) dbsqlc.ListTemplateRowsParams {
	e := actor.Extent(rbac.Template)
	return dbsqlc.ListTemplateRowsParams{
		ExtentAll: e.All, ExtentOrganizations: e.Organizations, ExtentMember: e.Member, ExtentPrincipals: e.Principals,
		ExtentOnly: e.Only,
	}
}

// template returns the template in the path if the actor may perform the action on it.
func (s *Service) template(r *http.Request, action rbac.Action) (dbsqlc.Template, error) {
	id, err := httpapi.PathUUID(r, "template")
	if err != nil {
		return dbsqlc.Template{}, err
	}
	t, err := s.opts.DB.GetTemplate(r.Context(), id)
	if err != nil {
		return t, lookup.Fault(err, rbac.Template, "read template")
	}
	return t, httpapi.ActorFrom(r.Context()).May(action, object(t)) // no request for a template stays open
}

// templateByName returns the template in the path by organization and name.
func (s *Service) templateByName(r *http.Request) (dbsqlc.Template, error) {
	org, err := s.organization(r)
	if err != nil {
		return dbsqlc.Template{}, err
	}
	t, err := s.opts.DB.GetTemplateByName(r.Context(), dbsqlc.GetTemplateByNameParams{
		OrganizationID: org.ID, Name: r.PathValue("templatename"),
	})
	if err != nil {
		return t, lookup.Fault(err, rbac.Template, "look up template")
	}
	return t, httpapi.ActorFrom(r.Context()).May(rbac.Read, object(t))
}

func (s *Service) getTemplate(w http.ResponseWriter, r *http.Request) error {
	t, err := s.template(r, rbac.Read)
	if err != nil {
		return err
	}
	return s.writeTemplate(w, r, http.StatusOK, t.ID)
}

func (s *Service) getTemplateByName(w http.ResponseWriter, r *http.Request) error {
	t, err := s.templateByName(r)
	if err != nil {
		return err
	}
	return s.writeTemplate(w, r, http.StatusOK, t.ID)
}

func (s *Service) updateTemplate(w http.ResponseWriter, r *http.Request) error {
	t, err := s.template(r, rbac.Update)
	if err != nil {
		return err
	}
	var req sdk.UpdateTemplateRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := checkFixed(req.FixedTemplateSettings); err != nil {
		return err
	}
	if err := checkIdentity(req.TemplateIdentity); err != nil {
		return err
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		t, err := q.LockTemplate(r.Context(), t.ID)
		if database.IsNotFound(err) {
			return rbac.NotFound(rbac.Template)
		}
		if err != nil {
			return err
		}
		p := dbsqlc.UpdateTemplateParams{
			ID: t.ID, Name: or(req.Name, t.Name), DisplayName: or(req.DisplayName, t.DisplayName),
			Description: or(req.Description, t.Description),
			Icon:        or(req.Icon, t.Icon), RequireActiveVersion: or(req.RequireActiveVersion,
				t.RequireActiveVersion),
			Deprecated: or(req.DeprecationMessage, t.Deprecated),
		}
		if err := checkTexts(p.Name, p.DisplayName, p.Description, p.Icon); err != nil {
			return err
		}
		if p.DefaultTtlSeconds, err = seconds(req.DefaultTTLMillis, t.DefaultTtlSeconds); err != nil {
			return err
		}
		if err := restartClocks(r.Context(), q, t.ID, req); err != nil {
			return err
		}
		policies, err := setPolicy(r.Context(), q, t.ID, p.DefaultTtlSeconds, req.TemplatePolicy)
		if err != nil {
			return err
		}
		after, err := q.UpdateTemplate(r.Context(), p)
		if err != nil {
			return err
		}
		if after, err = limitSharing(r.Context(), q, after, req.MaxPortShareLevel); err != nil {
			return err
		}
		if after, err = setIdentity(r.Context(), q, after, req.TemplateIdentity); err != nil {
			return err
		}
		if req.DisableEveryoneGroupAccess {
			if after, err = makePrivate(r.Context(), q, after); err != nil {
				return err
			}
		}
		entry := audit.OfTemplate(t, after)
		maps.Copy(entry.Diff, policies)
		if err := audit.Record(r.Context(), q, entry); err != nil {
			return err
		}
		return s.notifyDeprecated(r.Context(), q, t, after)
	})
	if err != nil {
		return nameTaken(err, or(req.Name, ""), "update template")
	}
	return s.writeTemplate(w, r, http.StatusOK, t.ID)
}

func (s *Service) deleteTemplate(w http.ResponseWriter, r *http.Request) error {
	t, err := s.template(r, rbac.Delete)
	if err != nil {
		return err
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		if _, err := q.LockTemplate(r.Context(), t.ID); err != nil {
			return err
		}
		names, err := q.ListTemplateWorkspaceNames(r.Context(), t.ID)
		if err != nil {
			return err
		}
		if len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, sdk.PrebuildsOwner+"/") }) {
			return fault.New(fault.Conflict, "The template %q still has prebuilt workspaces.", t.Name).
				WithDetail("Deprecate the template: coder templates edit %s --deprecated <reason>. The server then deletes them within a minute or two, and the template can be deleted.", shell.POSIX(t.Name))
		}
		if len(names) > 0 {
			return fault.New(fault.Conflict, "The template %q is still used by workspaces: delete them first.", t.Name).
				WithDetail("%s", strings.Join(names, ", "))
		}
		if err := q.SoftDeleteTemplate(r.Context(), t.ID); err != nil {
			return err
		}
		if err := q.DeleteConsentsToTemplate(r.Context(), t.ID); err != nil {
			return err
		}
		if err := audit.Record(r.Context(), q, audit.OfTemplate(t, dbsqlc.Template{})); err != nil {
			return err
		}
		return s.notifyDeleted(r.Context(), q, t)
	})
	if err != nil {
		return lookup.Fault(err, rbac.Template, "delete template")
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The template is deleted."})
}

func (s *Service) updateActiveVersion(w http.ResponseWriter, r *http.Request) error {
	t, err := s.template(r, rbac.Update)
	if err != nil {
		return err
	}
	var req sdk.UpdateActiveVersionRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		if _, _, err := ready(r.Context(), q, req.ID, ofTemplate(t.ID)); err != nil {
			return err
		}
		before, err := q.LockTemplate(r.Context(), t.ID)
		if err != nil {
			return lookup.Fault(err, rbac.Template, "lock template")
		}
		v, err := q.GetTemplateVersion(r.Context(), req.ID) // as it is under the lock
		if err != nil {
			return lookup.Fault(err, rbac.TemplateVersion, "read template version")
		}
		if err := RefuseArchived(v); err != nil {
			return err
		}
		if err := q.UpdateTemplateActiveVersion(r.Context(), dbsqlc.UpdateTemplateActiveVersionParams{
			ID: t.ID, ActiveVersionID: req.ID,
		}); err != nil {
			return err
		}
		after := before
		after.ActiveVersionID = req.ID
		return audit.Record(r.Context(), q, audit.OfTemplate(before, after))
	})
	if err != nil {
		return fmt.Errorf("change active version: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "This version is now active."})
}

// ready returns an imported version that may be used, and its import. Otherwise the error is a fault.
func ready(
	ctx context.Context, q *dbsqlc.Queries, id uuid.UUID, may func(dbsqlc.TemplateVersion) bool,
) (dbsqlc.TemplateVersion, dbsqlc.ProvisionerJob, error) {
	v, err := q.GetTemplateVersion(ctx, id)
	if database.IsNotFound(err) || err == nil && !may(v) {
		return v, dbsqlc.ProvisionerJob{}, fault.New(fault.Invalid, "The template has no such version.").
			WithField("template_version_id", "does not exist")
	}
	if err != nil {
		return v, dbsqlc.ProvisionerJob{}, fmt.Errorf("read template version: %w", err)
	}
	job, err := q.GetTemplateJob(ctx, dbsqlc.GetTemplateJobParams{ID: v.JobID, Kind: string(sdk.JobTemplateImport)})
	if err != nil {
		return v, job, fmt.Errorf("read import job: %w", err)
	}
	return v, job, imported(v, job)
}

// ofTemplate reports whether versions belong to a template.
func ofTemplate(id uuid.UUID) func(dbsqlc.TemplateVersion) bool {
	return func(v dbsqlc.TemplateVersion) bool { return v.TemplateID != nil && *v.TemplateID == id }
}

// imported returns a fault unless workspaces can be built from the version.
func imported(v dbsqlc.TemplateVersion, job dbsqlc.ProvisionerJob) error {
	switch status := sdk.JobStatus(job.Status); {
	case status == sdk.JobSucceeded:
		return nil
	case status.Ended():
		return fault.New(fault.Invalid, "Version %q cannot be used. Import status: %s.", v.Name, status).
			WithDetail("%s", job.Error).WithField("template_version_id", "import status: "+job.Status)
	default:
		return fault.New(fault.Conflict, "The import of version %q has not finished.", v.Name).
			WithDetail("It is %s. Try again when it has finished.", status)
	}
}

func checkTexts(name, displayName, description, icon string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	for _, t := range [][2]string{{"display_name", displayName}, {"description", description}, {"icon", icon}} {
		if err := checkText(t[0], t[1]); err != nil {
			return err
		}
	}
	return nil
}

// checkText returns a fault if a template cannot have the value in the field: display_name, description or icon.
func checkText(field, value string) error {
	limit := map[string]int{"display_name": maxDisplayName, "description": maxDescription, "icon": maxIcon}[field]
	hidden := httpapi.Hidden
	if field == "description" {
		hidden = func(r rune) bool { return r != '\n' && r != '\r' && r != '\t' && httpapi.Hidden(r) }
	}
	if len(value) > limit || strings.ContainsFunc(value, hidden) {
		return fault.New(fault.Invalid, "The template's %s is invalid.", strings.ReplaceAll(field, "_", " ")).
			WithField(field, fmt.Sprintf("must be text of at most %d bytes, all of it visible", limit))
	}
	return nil
}

// seconds converts milliseconds from a request to the stored value.
func seconds(millis *int64, unchanged int64) (int64, error) {
	if millis == nil {
		return unchanged, nil
	}
	if *millis < 0 || *millis > (365*24*time.Hour).Milliseconds() || *millis%1000 != 0 {
		return 0, fault.New(fault.Invalid, "The autostop duration is invalid.").
			WithField("default_ttl_ms", "must be from 0 to a year, in whole seconds")
	}
	return *millis / 1000, nil
}

func or[T any](p *T, fallback T) T {
	if p != nil {
		return *p
	}
	return fallback
}

// Ready returns a version of the template that workspaces can be built from, and its source file. Otherwise the error
// is a fault.
func Ready(
	ctx context.Context, q *dbsqlc.Queries, version, template uuid.UUID,
) (dbsqlc.TemplateVersion, uuid.UUID, error) {
	v, job, err := ready(ctx, q, version, ofTemplate(template))
	return v, job.FileID, err
}
