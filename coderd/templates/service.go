package templates

import (
	"context"
	"crypto/sha256"
	"net/http"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/memo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Options configure the service. All fields except Evaluate are required.
type Options struct {
	DB     *database.DB
	Jobs   *jobs.Service
	Agents *agents.Service
	// ExternalAuth has the logins that templates ask for.
	ExternalAuth *extauth.Service
	AccessURL    string // the server's public URL, as templates see it
	// Evaluate returns the form of a template for some answers. It is called once at a time for each question, and must
	// itself bound how many calls run at one time. If nil, forms stay as they were at their import.
	Evaluate func(context.Context, Question) (Answer, error)
	// Notifications records what users are told. Nil: nothing.
	Notifications *notifications.Recorder
}

// Service serves templates. Safe for concurrent use.
type Service struct {
	opts  Options
	forms *memo.Cache[[sha256.Size]byte, Answer]
	plans jobs.StateReader // set before the jobs start
}

// New returns the service and registers it as the jobs' handler of imports and dry runs.
func New(opts Options) *Service {
	s := &Service{opts: opts, forms: newForms()}
	opts.Jobs.Handle(string(sdk.JobTemplateImport), importHandler{s})
	opts.Jobs.Handle(string(sdk.JobTemplateDryRun), dryRunHandler{s})
	return s
}

// HandlePlans sets the handler of dry runs of existing workspaces. Call it before the jobs start.
func (s *Service) HandlePlans(h jobs.StateReader) { s.plans = h }

// Routes registers the templates' routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	read, readVersion, update := rbac.Needs(rbac.Read, rbac.Template), rbac.Needs(rbac.Read,
		rbac.TemplateVersion), rbac.Needs(rbac.Update, rbac.Template)
	updateVersion := rbac.Needs(rbac.Update, rbac.TemplateVersion)

	mux.Handle("POST /api/v2/organizations/{organization}/templates", rbac.Needs(rbac.Create, rbac.Template),
		s.createTemplate, audit.On(audit.Create, audit.Template), httpapi.Creates("templates/{created}"))
	mux.Handle("GET /api/v2/organizations/{organization}/templates", read, s.listTemplates)
	mux.Handle("GET /api/v2/organizations/{organization}/templates/{templatename}", read, s.getTemplateByName)
	mux.Handle("GET /api/v2/organizations/{organization}/templates/{templatename}/versions/{versionname}", readVersion,
		s.getVersionByNames)
	mux.Handle("GET /api/v2/organizations/{organization}/templates/{templatename}/versions/{versionname}/previous",
		readVersion, s.getPreviousVersion)
	mux.Handle("GET /api/v2/templates", read, s.listTemplates)
	mux.Handle("GET /api/v2/templates/examples", read, s.listExamples)
	mux.Handle("GET /api/v2/organizations/{organization}/templates/examples", read, s.listExamples)
	mux.Handle("GET /api/v2/templates/{template}", read, s.getTemplate)
	mux.Handle("PATCH /api/v2/templates/{template}", update, s.updateTemplate, audit.On(audit.Write, audit.Template))
	mux.Handle("DELETE /api/v2/templates/{template}", rbac.Needs(rbac.Delete, rbac.Template), s.deleteTemplate,
		audit.On(audit.Delete, audit.Template))
	mux.Handle("GET /api/v2/templates/{template}/versions", readVersion, s.listVersions)
	mux.Handle("PATCH /api/v2/templates/{template}/versions", update, s.updateActiveVersion,
		audit.On(audit.Write, audit.Template))
	mux.Handle("GET /api/v2/templates/{template}/versions/{versionname}", readVersion, s.getVersionByName)
	mux.Handle("GET /api/v2/templates/{template}/acl", read, s.getACL)
	mux.Handle("PATCH /api/v2/templates/{template}/acl", rbac.Needs(rbac.Share, rbac.Template), s.updateACL,
		audit.On(audit.Write, audit.Template))
	mux.Handle("GET /api/v2/templates/{template}/acl/available", rbac.Needs(rbac.Share, rbac.Template), s.listAvailable)

	mux.Handle("GET /api/v2/templates/{template}/daus", update, s.templateDAUs)
	mux.Handle("GET /api/v2/insights/daus", rbac.Needs(rbac.Read, rbac.Deployment), s.deploymentDAUs)
	mux.Handle("GET /api/v2/insights/templates", update, s.templateInsights)
	mux.Handle("GET /api/v2/insights/user-activity", update, s.userActivity)
	mux.Handle("GET /api/v2/insights/user-latency", update, s.userLatency)

	mux.Handle("POST /api/v2/organizations/{organization}/templateversions", rbac.Needs(rbac.Create, rbac.TemplateVersion), s.createVersion, audit.On(audit.Create, audit.TemplateVersion), httpapi.Creates("templateversions/{created}"))
	mux.Handle("GET /api/v2/templateversions/{templateversion}", readVersion, s.getVersion)
	mux.Handle("PATCH /api/v2/templateversions/{templateversion}", updateVersion, s.updateVersion,
		audit.On(audit.Write, audit.TemplateVersion))
	mux.Handle("PATCH /api/v2/templateversions/{templateversion}/cancel", updateVersion, s.cancelVersion,
		audit.On(audit.Cancel, audit.TemplateVersion))
	mux.Handle("POST /api/v2/templateversions/{templateversion}/archive", updateVersion, s.archiveVersion,
		audit.On(audit.Write, audit.TemplateVersion))
	mux.Handle("POST /api/v2/templateversions/{templateversion}/unarchive", updateVersion, s.unarchiveVersion,
		audit.On(audit.Write, audit.TemplateVersion))
	mux.Handle("POST /api/v2/templates/{template}/versions/archive", update, s.archiveVersions,
		audit.On(audit.Write, audit.TemplateVersion))
	mux.Handle("GET /api/v2/templateversions/{templateversion}/logs", readVersion, s.versionLogs)
	mux.Handle("GET /api/v2/templateversions/{templateversion}/rich-parameters", readVersion, s.listParameters)
	mux.Handle("GET /api/v2/templateversions/{templateversion}/presets", readVersion, s.listPresets)
	mux.Handle("GET /api/v2/templateversions/{templateversion}/resources", readVersion, s.listResources)
	mux.Handle("GET /api/v2/templateversions/{templateversion}/variables", updateVersion, s.listVariables)
	mux.Handle("GET /api/v2/templateversions/{templateversion}/external-auth", readVersion, s.listExternalAuth)

	mux.Handle("GET /api/v2/templateversions/{templateversion}/dynamic-parameters", readVersion, s.formSocket)
	mux.Handle("POST /api/v2/templateversions/{templateversion}/dynamic-parameters/evaluate", readVersion, s.evaluate,
		audit.Exempt("evaluates a form and stores nothing"))

	mux.Handle("POST /api/v2/templateversions/{templateversion}/dry-run", readVersion, s.createDryRun, audit.On(audit.Create, audit.ProvisionerJob), httpapi.Creates("templateversions/{templateversion}/dry-run/{created}"))
	mux.Handle("GET /api/v2/templateversions/{templateversion}/dry-run/{job}", readVersion, s.getDryRun)
	mux.Handle("GET /api/v2/templateversions/{templateversion}/dry-run/{job}/logs", readVersion, s.dryRunLogs)
	mux.Handle("GET /api/v2/templateversions/{templateversion}/dry-run/{job}/resources", readVersion, s.dryRunResources)
	mux.Handle("GET /api/v2/templateversions/{templateversion}/dry-run/{job}/matched-provisioners", readVersion,
		s.dryRunProvisioners)
	mux.Handle("PATCH /api/v2/templateversions/{templateversion}/dry-run/{job}/cancel", readVersion, s.cancelDryRun,
		audit.On(audit.Cancel, audit.ProvisionerJob))
}

// organization returns the organization in the path.
func (s *Service) organization(r *http.Request) (dbsqlc.Organization, error) {
	return lookup.Organization(r, s.opts.DB.Queries, httpapi.ActorFrom(r.Context()))
}
