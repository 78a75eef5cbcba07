package workspaces

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/identity"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Options configure the service. All fields are required except those that say what their zero value means.
type Options struct {
	DB     *database.DB
	Jobs   *jobs.Service
	Agents *agents.Service
	Users  *users.Service
	PubSub pubsub.PubSub
	States *keyring.Ring
	// ExternalAuth has the logins that templates ask for.
	ExternalAuth *extauth.Service
	// Identity issues the ID tokens of builds. Nil means that they get none.
	Identity  *identity.Service
	Logger    *slog.Logger
	AccessURL string // the server's public URL, as templates see it
	// QuietHours are those of users without their own. The zero value means policy.DefaultQuietHours.
	QuietHours policy.QuietHours
	// CustomQuietHours honors the quiet hours that users chose.
	CustomQuietHours bool
	// Announcer tells users what policy does. Nil: they see it on pages and in the command line only.
	Announcer Announcer
	// Now returns the time. Nil means time.Now.
	Now func() time.Time
	// Forms evaluates the forms of templates. Nil: an immutable value that depends on other answers cannot be replaced
	// once it is not allowed.
	Forms Forms
	// Notifications records what users are told of builds and sharing. Nil: nothing.
	Notifications *notifications.Recorder
}

// Forms is implemented by templates.Service.
type Forms interface {
	// Allows reports whether the form of a version allows a value of a parameter to a workspace of an owner with these
	// answers.
	Allows(ctx context.Context, version, owner uuid.UUID, answers map[string]string, name, value string) (bool, error)
}

// Service serves workspaces and their builds. Safe for concurrent use.
type Service struct {
	opts Options
	log  *slog.Logger

	life    context.Context // ends with Stop
	stop    context.CancelFunc
	stopped chan struct{} // closed when the loop has ended; nil before Start
	taken   notify.Wake   // a user got a prebuilt workspace
}

// New returns a service that is not started, and registers it as the jobs' handler of builds.
func New(opts Options) *Service {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.QuietHours.Location() == nil {
		opts.QuietHours = policy.MustParseQuietHours(policy.DefaultQuietHours)
	}
	s := &Service{opts: opts, log: opts.Logger, taken: notify.NewWake()}
	s.life, s.stop = context.WithCancel(context.Background())
	opts.Jobs.Handle(string(sdk.JobWorkspaceBuild), buildHandler{s})
	return s
}

// Routes registers the workspaces' and builds' routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	create, read, update := rbac.Needs(rbac.Create, rbac.Workspace), rbac.Needs(rbac.Read,
		rbac.Workspace), rbac.Needs(rbac.Update, rbac.Workspace)
	readBuild := rbac.Needs(rbac.Read, rbac.WorkspaceBuild)

	mux.Handle("POST /api/v2/users/{user}/workspaces", create, s.create, audit.On(audit.Create, audit.Workspace),
		httpapi.Creates("workspaces/{created}"))
	mux.Handle("POST /api/v2/organizations/{organization}/members/{user}/workspaces", create, s.create,
		audit.On(audit.Create, audit.Workspace), httpapi.Creates("workspaces/{created}"))
	mux.Handle("GET /api/v2/workspaces", read, s.list)
	mux.Handle("GET /api/v2/workspaces/{workspace}", read, s.get)
	mux.Handle("PATCH /api/v2/workspaces/{workspace}", update, s.rename, audit.On(audit.Write, audit.Workspace))
	mux.Handle("GET /api/v2/users/{user}/workspace/{workspacename}", read, s.getByName)
	mux.Handle("PUT /api/v2/workspaces/{workspace}/autostart", update, s.putAutostart,
		audit.On(audit.Write, audit.Workspace))
	mux.Handle("PUT /api/v2/workspaces/{workspace}/ttl", update, s.putTTL, audit.On(audit.Write, audit.Workspace))
	mux.Handle("PUT /api/v2/workspaces/{workspace}/extend", update, s.putExtend, audit.On(audit.Write, audit.Workspace))
	mux.Handle("PUT /api/v2/workspaces/{workspace}/autoupdates", update, s.putAutomaticUpdates,
		audit.On(audit.Write, audit.Workspace))
	mux.Handle("PUT /api/v2/workspaces/{workspace}/favorite", read, s.putFavorite,
		audit.On(audit.Write, audit.Workspace))
	mux.Handle("DELETE /api/v2/workspaces/{workspace}/favorite", read, s.deleteFavorite,
		audit.On(audit.Write, audit.Workspace))
	mux.Handle("POST /api/v2/workspaces/{workspace}/usage", rbac.Needs(rbac.Connect, rbac.Workspace), s.postUsage,
		audit.Exempt("reports that the workspace is in use, every few seconds; the connection log has the sessions"))
	mux.Handle("PUT /api/v2/workspaces/{workspace}/dormant", update, s.putDormant,
		audit.On(audit.Write, audit.Workspace))
	mux.Handle("GET /api/v2/workspaces/{workspace}/resolve-autostart", read, s.resolveAutostart)
	mux.Handle("GET /api/v2/users/{user}/autofill-parameters", read, s.listAutofill)
	mux.Handle("GET /api/v2/organizations/{organization}/members/{user}/workspace-quota",
		rbac.Needs(rbac.Read, rbac.User), s.getQuota)
	withdraw := rbac.Needs(rbac.Withdraw, rbac.Workspace) // handlers ask for Share where a request gives more access
	mux.Handle("GET /api/v2/workspaces/{workspace}/acl", withdraw, s.getACL)
	mux.Handle("PATCH /api/v2/workspaces/{workspace}/acl", withdraw, s.patchACL, audit.On(audit.Write, audit.Workspace))
	mux.Handle("DELETE /api/v2/workspaces/{workspace}/acl", withdraw, s.deleteACL,
		audit.On(audit.Write, audit.Workspace))
	mux.Handle("POST /api/v2/workspaces/{workspace}/transfer", rbac.Needs(rbac.Transfer, rbac.Workspace), s.transfer,
		audit.On(audit.Transfer, audit.Workspace))
	mux.Handle("GET /api/v2/workspaces/{workspace}/external-agent/{workspaceagent}/credentials",
		rbac.Needs(rbac.Update, rbac.Agent), s.getExternalAgent)
	mux.Handle("GET /api/v2/prebuilds/settings", rbac.Needs(rbac.Read, rbac.Deployment), s.getPrebuilds)
	mux.Handle("PUT /api/v2/prebuilds/settings", rbac.Needs(rbac.Update, rbac.Deployment), s.putPrebuilds,
		audit.On(audit.Write, audit.PrebuildsSettings))
	mux.Handle("POST /api/v2/templates/{template}/prebuilds/invalidate", rbac.Needs(rbac.Update, rbac.Template),
		s.invalidatePrebuilds, audit.On(audit.Write, audit.Template))
	mux.Handle("GET /api/v2/templates/{template}/prebuilds", rbac.Needs(rbac.Read, rbac.Template), s.templatePrebuilds)
	mux.Handle("GET /api/v2/workspaces/{workspace}/watch", read, s.watch)
	mux.Handle("GET /api/v2/workspaces/{workspace}/watch-ws", read, s.watchWebsocket)

	mux.Handle("POST /api/v2/workspaces/{workspace}/builds", rbac.Needs(rbac.Create, rbac.WorkspaceBuild),
		s.createBuild, audit.On(audit.Start, audit.Workspace), httpapi.Creates("workspacebuilds/{created}"))
	mux.Handle("POST /api/v2/workspaces/{workspace}/restart", rbac.Needs(rbac.Create, rbac.WorkspaceBuild), s.restart,
		audit.On(audit.Start, audit.Workspace), httpapi.Creates("workspacebuilds/{created}"))
	mux.Handle("POST /api/v2/workspaces/{workspace}/plan", rbac.Needs(rbac.Create, rbac.WorkspaceBuild), s.createPlan,
		audit.On(audit.Create, audit.ProvisionerJob), httpapi.Creates("workspaces/{workspace}/plan/{created}"))
	mux.Handle("GET /api/v2/workspaces/{workspace}/plan/{job}", readBuild, s.getPlan)
	mux.Handle("GET /api/v2/workspaces/{workspace}/plan/{job}/logs", readBuild, s.planLogs)
	mux.Handle("PATCH /api/v2/workspaces/{workspace}/plan/{job}/cancel", rbac.Needs(rbac.Create, rbac.WorkspaceBuild),
		s.cancelPlan, audit.On(audit.Cancel, audit.ProvisionerJob))
	mux.Handle("GET /api/v2/workspaces/{workspace}/builds", readBuild, s.listBuilds)
	mux.Handle("GET /api/v2/workspaces/{workspace}/states", readBuild, s.listStates)
	mux.Handle("POST /api/v2/workspacebuilds/{workspacebuild}/restore", rbac.Needs(rbac.Create, rbac.WorkspaceBuild),
		s.restoreState, audit.On(audit.Start, audit.Workspace), httpapi.Creates("workspacebuilds/{created}"))
	mux.Handle("GET /api/v2/workspaces/{workspace}/timings", readBuild, s.getLatestTimings)
	mux.Handle("GET /api/v2/users/{user}/workspace/{workspacename}/builds/{buildnumber}", readBuild, s.getBuildByNumber)
	mux.Handle("GET /api/v2/workspacebuilds/{workspacebuild}", readBuild, s.getBuild)
	mux.Handle("GET /api/v2/workspacebuilds/{workspacebuild}/parameters", readBuild, s.getBuildParameters)
	mux.Handle("GET /api/v2/workspacebuilds/{workspacebuild}/resources", readBuild, s.getBuildResources)
	mux.Handle("GET /api/v2/workspacebuilds/{workspacebuild}/logs", readBuild, s.getBuildLogs)
	mux.Handle("GET /api/v2/workspacebuilds/{workspacebuild}/timings", readBuild, s.getTimings)
	mux.Handle("GET /api/v2/workspacebuilds/{workspacebuild}/state", readBuild, s.getBuildState)
	mux.Handle("PUT /api/v2/workspacebuilds/{workspacebuild}/state", readBuild, s.putBuildState,
		audit.On(audit.Write, audit.WorkspaceBuild))
	mux.Handle("PATCH /api/v2/workspacebuilds/{workspacebuild}/cancel", rbac.Needs(rbac.Update, rbac.WorkspaceBuild),
		s.cancelBuild, audit.On(audit.Cancel, audit.WorkspaceBuild))
}
