package consents_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"
	"golang.org/x/oauth2"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every way in which a credential of a workspace's owner can reach the workspace's template.
var kinds = []string{
	"build: session token", "build: OIDC access token", "build: private SSH key", "build: external login",
	"agent: private SSH key", "agent: external login", "agent: secret",
}

// world is a server with the template "greedy", which takes every credential that it can get. The organization's administrator oscar has made it.
type world struct {
	*coderdtest.Server
	greedy sdk.Template
	pooled sdk.Template // as greedy, with prebuilt workspaces; zero before prebuild
	preset uuid.UUID    // of pooled
	agent  uuid.UUID    // whose RPCs agents answers
	agents agentpbconnect.AgentServiceClient
}

func greedy() *provisionerpb.ImportResult {
	return &provisionerpb.ImportResult{
		NamesOwnerSessionToken: true, NamesOwnerOidcAccessToken: true, NamesOwnerSshPrivateKey: true,
		ExternalAuth: []*provisionerpb.ExternalAuth{{Id: "forge"}},
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: coderdtest.New(t, func(o *coderd.Options) {
		const prefix, away = "CODER_EXTERNAL_AUTH_0_", "http://127.0.0.1:1"
		var err error
		if o.ExternalAuth, err = extauth.ParseEnv([]string{
			prefix + "TYPE=forge", prefix + "ID=forge", prefix + "CLIENT_ID=id", prefix + "CLIENT_SECRET=secret", prefix + "AUTH_URL=" + away, prefix + "TOKEN_URL=" + away,
		}); err != nil {
			t.Fatal(err)
		}
		if o.OIDC, err = signin.NewOIDC(signintest.New(t, o.AccessURL).Settings(), o.AccessURL); err != nil {
			t.Fatal(err)
		}
	})}
	w.User("oscar")
	w.Exec(`UPDATE organization_members SET roles = '{organization-admin}' WHERE user_id = $1`, w.User("oscar"))
	w.greedy = w.Template("greedy", greedy())
	_, handler := w.Agents.RPCHandler(func(netip.Addr) (uuid.UUID, bool) { return w.agent, true })
	w.agents = agentpbconnect.NewAgentServiceClient(coderdtest.RPCClient(t, new(net.Dialer).DialContext), coderdtest.ServeRPC(t, handler))
	return w
}

// victim makes a user who has every kind of credential, and an organization's member.
func (w *world) victim(name string) {
	w.T.Helper()
	ctx := w.T.Context()
	for provider, token := range map[string]string{"forge": "login-of-" + name, extauth.SignInOIDC: "oidc-of-" + name} {
		if err := w.ExternalAuth.Link(ctx, w.User(name), provider, &oauth2.Token{AccessToken: token}); err != nil {
			w.T.Fatal(err)
		}
	}
	if _, err := w.As(name).CreateUserSecret(ctx, sdk.Me, sdk.CreateUserSecretRequest{Name: "key", Value: "secret-of-" + name, EnvName: "KEY"}); err != nil {
		w.T.Fatal(err)
	}
}

// privateKey returns a line of a user's private key.
func (w *world) privateKey(name string) string {
	w.T.Helper()
	key, err := w.Users.SSHKey(w.T.Context(), w.DB.Queries, w.User(name))
	if err != nil {
		w.T.Fatal(err)
	}
	return strings.Split(key.Private.Reveal(), "\n")[1]
}

// text returns everything in a message, with strings as they are.
func text(m proto.Message) string {
	return strings.ReplaceAll(prototext.Format(m), `\n`, "\n")
}

// taken returns which of a user's credentials a build gets, and then its agent, which runs from then on.
func (w *world) taken(job *coderdtest.Job, name string) []string {
	w.T.Helper()
	found := map[string]bool{}
	offer := text(job.Offer)
	found["build: session token"] = job.GetWorkspaceBuild().GetMetadata().GetOwnerSessionToken() != ""
	found["build: OIDC access token"] = strings.Contains(offer, "oidc-of-"+name)
	found["build: private SSH key"] = strings.Contains(offer, w.privateKey(name))
	found["build: external login"] = strings.Contains(offer, "login-of-"+name)
	w.agent = uuid.New()
	job.Finish(coderdtest.Built("s", coderdtest.Resource(w.agent)))
	for _, kind := range w.takenByAgent(name) {
		found[kind] = true
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return !found[kind] })
}

// takenByAgent returns which of a user's credentials the agent of the last build gets now.
func (w *world) takenByAgent(name string) (found []string) {
	w.T.Helper()
	ctx := w.T.Context()
	refused := func(err error) bool {
		w.T.Helper()
		if err == nil {
			return false
		}
		if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), name+" gives them with: coder restart") {
			w.T.Errorf("the agent was refused with %v", err)
		}
		return true
	}
	key, err := w.agents.GitSSHKey(ctx, connect.NewRequest(&agentpb.GitSSHKeyRequest{}))
	if !refused(err) && strings.Contains(text(key.Msg), w.privateKey(name)) {
		found = append(found, "agent: private SSH key")
	}
	login, err := w.agents.ExternalAuth(ctx, connect.NewRequest(&agentpb.ExternalAuthRequest{Of: &agentpb.ExternalAuthRequest_ProviderId{ProviderId: "forge"}}))
	if !refused(err) && strings.Contains(text(login.Msg), "login-of-"+name) {
		found = append(found, "agent: external login")
	}
	manifest, err := w.agents.Manifest(ctx, connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil {
		w.T.Fatal(err)
	}
	if strings.Contains(text(manifest.Msg), "secret-of-"+name) {
		found = append(found, "agent: secret")
	}
	return found
}

// createFor creates a workspace of the greedy template for a user, as another user.
func (w *world) createFor(client *sdk.Client, owner, name string) sdk.Workspace {
	w.T.Helper()
	ws, err := client.CreateWorkspace(w.T.Context(), owner, sdk.CreateWorkspaceRequest{TemplateID: w.greedy.ID, Name: name})
	if err != nil {
		w.T.Fatal(err)
	}
	return ws
}

// foist makes olga create a workspace for a user, and runs its build.
func (w *world) foist(owner, name string) sdk.Workspace {
	w.T.Helper()
	ws := w.createFor(w.As("olga"), owner, name)
	w.Daemon().Next().Finish(coderdtest.Built("s", coderdtest.Resource(uuid.New())))
	return ws
}

// build builds a workspace as the given user.
func (w *world) build(client *sdk.Client, ws sdk.Workspace, req sdk.CreateBuildRequest) {
	w.T.Helper()
	if _, err := client.CreateBuild(w.T.Context(), ws.ID, req); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) scoped(user string, scopes ...string) *sdk.Client {
	w.T.Helper()
	made, err := w.As(user).CreateToken(w.T.Context(), sdk.Me, sdk.CreateTokenRequest{Scopes: scopes})
	if err != nil {
		w.T.Fatal(err)
	}
	return w.With(secret.Token(made.Key))
}

func (w *world) restart(client *sdk.Client, ws sdk.Workspace) {
	w.T.Helper()
	if _, err := client.Restart(w.T.Context(), ws.ID, sdk.CreateBuildRequest{}); err != nil {
		w.T.Fatal(err)
	}
	w.Daemon().Next().Finish(coderdtest.Built("s")) // the stop
}

// autostart stops a workspace that a user gave a schedule, and lets the schedule start it.
func (w *world) autostart(as string, ws sdk.Workspace) {
	w.T.Helper()
	schedule := "* * * * *"
	if err := w.As(as).UpdateAutostart(w.T.Context(), ws.ID, sdk.UpdateAutostartRequest{Schedule: &schedule}); err != nil {
		w.T.Fatal(err)
	}
	w.Build(as, ws.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	next := w.Get(ws.ID).NextStartAt
	if next == nil {
		w.T.Fatal("no next start")
	}
	if err := w.Workspaces.RunSchedule(w.T.Context(), *next); err != nil {
		w.T.Fatal(err)
	}
	if b := w.Get(ws.ID).LatestBuild; b.Reason != sdk.ReasonAutostart {
		w.T.Fatalf("the schedule started nothing: build %d, %s", b.BuildNumber, b.Reason)
	}
}

// prebuild makes a prebuilt workspace that is ready.
func (w *world) prebuild() {
	w.T.Helper()
	if w.pooled.ID == uuid.Nil {
		found := greedy()
		found.Presets = []*provisionerpb.Preset{{Name: "big", Prebuilds: &provisionerpb.Prebuilds{Instances: 1}}}
		w.pooled = w.Template("pooled", found)
		presets, err := w.As("tom").TemplateVersionPresets(w.T.Context(), w.pooled.ActiveVersionID)
		if err != nil || len(presets) != 1 {
			w.T.Fatalf("presets: %v, %v", presets, err)
		}
		w.preset = presets[0].ID
	}
	if err := w.Workspaces.RunSchedule(w.T.Context(), time.Now()); err != nil {
		w.T.Fatal(err)
	}
	job, agent := w.Daemon().Next(), uuid.New()
	if offer := text(job.Offer); strings.Contains(offer, "PRIVATE KEY") || job.GetWorkspaceBuild().GetMetadata().GetOwnerSessionToken() != "" {
		w.T.Errorf("the prebuilt workspace got %s", offer)
	}
	job.Finish(coderdtest.Built("s", coderdtest.Resource(agent)))
	w.Exec("UPDATE workspace_agents SET first_connected_at = now(), last_connected_at = now(), disconnected_at = NULL, lifecycle_state = 'ready' WHERE id = $1", agent)
}

func (w *world) claim(as, owner string) {
	w.T.Helper()
	ws, err := w.As(as).CreateWorkspace(w.T.Context(), owner, sdk.CreateWorkspaceRequest{TemplateID: w.pooled.ID, Name: "claimed", TemplateVersionPresetID: w.preset})
	if err != nil || ws.LatestBuild.BuildNumber != 2 {
		w.T.Fatalf("claim: build %d, %v", ws.LatestBuild.BuildNumber, err)
	}
}

// starter leaves a start as the next job of the user's workspace.
type starter struct {
	what  string
	start func(user string)
	all   bool // the workspace gets every kind of credentials; otherwise none
}

func (w *world) starters() []starter {
	start := sdk.CreateBuildRequest{Transition: sdk.TransitionStart}
	return []starter{
		// Others, or no one's hands.
		{"an administrator of the organization creates it", func(user string) { w.createFor(w.As("oscar"), user, "dev") }, false},
		{"an owner of the deployment creates it", func(user string) { w.createFor(w.As("olga"), user, "dev") }, false},
		{"an owner of the deployment starts it", func(user string) { w.build(w.As("olga"), w.foist(user, "dev"), start) }, false},
		{"an administrator of the organization restarts it", func(user string) { w.restart(w.As("oscar"), w.foist(user, "dev")) }, false},
		{"an administrator of the organization updates it", func(user string) {
			ws := w.foist(user, "dev")
			v := w.Version(&w.greedy.ID, greedy())
			w.build(w.As("oscar"), ws, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, TemplateVersionID: v.ID})
		}, false},
		{"a user with whom it is shared starts it", func(user string) {
			ws := w.foist(user, "dev")
			w.Exec(`UPDATE workspaces SET sharing = jsonb_build_object($2::text, 'admin') WHERE id = $1`, ws.ID, w.User("bob").String())
			w.build(w.As("bob"), ws, start)
		}, false},
		{"an administrator's schedule starts it", func(user string) { w.autostart("olga", w.foist(user, "dev")) }, false},
		{"another template starts it with the token of its workspace", func(user string) {
			trusted := w.Template("trusted-"+user, &provisionerpb.ImportResult{NamesOwnerSessionToken: true})
			w.Workspace(user, "other", trusted.ID)
			job := w.Daemon().Next()
			token := job.GetWorkspaceBuild().GetMetadata().GetOwnerSessionToken()
			job.Finish(coderdtest.Built("s", coderdtest.Resource(uuid.New())))
			w.createFor(w.With(secret.Token(token)), sdk.Me, "dev")
		}, false},
		{"a token of the user without workspace:start creates it", func(user string) {
			w.createFor(w.scoped(user, "workspace:create", "workspace:read", "template:read", "template:use"), sdk.Me, "dev")
		}, false},
		{"the user stops it, and an administrator starts it", func(user string) {
			ws := w.foist(user, "dev")
			w.Build(user, ws.ID, sdk.TransitionStop)
			w.Daemon().Next().Finish(coderdtest.Built("s"))
			w.build(w.As("olga"), ws, start)
		}, false},

		// The owner's own, and what follows from it.
		{"the user creates it", func(user string) { w.createFor(w.As(user), sdk.Me, "dev") }, true},
		{"the user starts what an administrator created", func(user string) { w.build(w.As(user), w.foist(user, "dev"), start) }, true},
		{"the user restarts what an administrator created", func(user string) { w.restart(w.As(user), w.foist(user, "dev")) }, true},
		{"a token of the user creates it", func(user string) { w.createFor(w.scoped(user, "coder:workspaces.create"), sdk.Me, "dev") }, true},
		{"an administrator restarts the user's", func(user string) {
			ws, _ := w.Running(user, "dev", w.greedy.ID)
			w.restart(w.As("oscar"), ws)
		}, true},
		{"the user's schedule starts it", func(user string) {
			ws, _ := w.Running(user, "dev", w.greedy.ID)
			w.autostart(user, ws)
		}, true},
		{"an administrator creates a second one", func(user string) {
			w.Running(user, "first", w.greedy.ID)
			w.createFor(w.As("olga"), user, "dev")
		}, true},

		// Last, because every look at schedules now also makes prebuilt workspaces.
		{"an administrator claims a prebuilt workspace for the user", func(user string) { w.prebuild(); w.claim("olga", user) }, false},
		{"the user claims a prebuilt workspace", func(user string) { w.prebuild(); w.claim(user, sdk.Me) }, true},
	}
}

// TestCredentialsNeedConsent walks every kind of credential and everybody and everything that starts a workspace: only what follows from the owner's
// own start gets any.
func TestCredentialsNeedConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, s := range w.starters() {
		user := "user" + string(rune('a'+i))
		w.victim(user)
		s.start(user)
		job := w.Daemon().Next()
		id := uuid.UUID(job.GetWorkspaceBuild().GetMetadata().GetWorkspaceId())
		want := []string{}
		if s.all {
			want = kinds
		}
		if diff := cmp.Diff(want, w.taken(job, user)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.what, diff)
		}
		build := w.Get(id).LatestBuild
		if build.CredentialsWithheld == s.all {
			t.Errorf("%s: the build shows withheld credentials: %t", s.what, build.CredentialsWithheld)
		}
		if log := w.log(build); strings.Contains(log, "This build gets no credentials of "+user) == s.all || !s.all && !strings.Contains(log, "coder restart "+build.WorkspaceName) {
			t.Errorf("%s: the log is %q", s.what, log)
		}
	}
}

func (w *world) log(b sdk.WorkspaceBuild) (all string) {
	w.T.Helper()
	lines, err := w.As("olga").BuildLogs(w.T.Context(), b.ID, 0)
	if err != nil {
		w.T.Fatal(err)
	}
	for _, line := range lines {
		all += line.Output + "\n"
	}
	return all
}

// TestImportsAndDryRuns checks that neither gets credentials, not even the requester's.
func TestImportsAndDryRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.victim("tom")
	w.Running("tom", "dev", w.greedy.ID)
	v, err := w.As("tom").CreateTemplateVersion(t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{
		TemplateID: &w.greedy.ID, StorageMethod: sdk.StorageFile, FileID: w.File("tom"), Provisioner: sdk.ProvisionerTerraform,
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, job *coderdtest.Job, m *provisionerpb.Metadata) {
		t.Helper()
		offer := text(job.Offer)
		if m.GetOwnerName() != "tom" || m.GetOwnerSessionToken() != "" || strings.Contains(offer, "-of-tom") || strings.Contains(offer, w.privateKey("tom")) {
			t.Errorf("%s gets %s", what, offer)
		}
	}
	job := w.Daemon().Next()
	check("the import", job, job.GetTemplateImport().GetMetadata())
	job.Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: greedy()}})
	if _, err := w.As("tom").CreateDryRun(t.Context(), v.ID, sdk.CreateDryRunRequest{WorkspaceName: "x"}); err != nil {
		t.Fatal(err)
	}
	job = w.Daemon().Next()
	check("the dry run", job, job.GetTemplateDryRun().GetMetadata())
}

// TestPlansNeedConsent checks that the plan of an update gets the owner's credentials only with their consent, which a
// plan does not give, and that it leaves the session token alone that the workspace uses.
func TestPlansNeedConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.victim("ann")
	ws := w.foist("ann", "foisted")
	secrets := []string{"oidc-of-ann", "login-of-ann", w.privateKey("ann")}
	takes := func(as string, want bool) {
		t.Helper()
		if _, err := w.As(as).CreatePlan(t.Context(), ws.ID, sdk.CreatePlanRequest{}); err != nil {
			t.Fatal(err)
		}
		job := w.Daemon().Next()
		offer := text(job.Offer)
		for _, s := range secrets {
			if strings.Contains(offer, s) != want {
				t.Errorf("the plan of %s gets %q: %t, want %t", as, s, !want, want)
			}
		}
		if token := job.GetTemplateDryRun().GetMetadata().GetOwnerSessionToken(); token != "" {
			t.Errorf("the plan of %s gets a session token", as)
		}
		job.Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateDryRun{TemplateDryRun: &provisionerpb.DryRunResult{Plan: &provisionerpb.ChangePlan{}}}})
	}
	takes("olga", false)
	takes("ann", false)
	w.build(w.As("ann"), ws, sdk.CreateBuildRequest{Transition: sdk.TransitionStart})
	start := w.Daemon().Next()
	token := start.GetWorkspaceBuild().GetMetadata().GetOwnerSessionToken()
	start.Finish(coderdtest.Built("s", coderdtest.Resource(uuid.New())))
	takes("ann", true)
	takes("olga", true) // as her start would
	if _, err := w.With(secret.Token(token)).User(t.Context(), sdk.Me); token == "" || err != nil {
		t.Errorf("the workspace's session token after a plan: %v", err)
	}
}

// TestRevocation checks that a revoked consent takes effect at once, and that the user can give it again.
func TestRevocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	w.victim("ann")
	w.victim("bob")
	bobs, _ := w.Running("bob", "dev", w.greedy.ID)
	ann := w.As("ann")
	ws := w.createFor(ann, sdk.Me, "dev")
	job := w.Daemon().Next()
	session := w.With(secret.Token(job.GetWorkspaceBuild().GetMetadata().GetOwnerSessionToken()))
	if diff := cmp.Diff(kinds, w.taken(job, "ann")); diff != "" {
		t.Fatalf("before (-want +got):\n%s", diff)
	}
	consents, err := ann.TemplateConsents(ctx, sdk.Me)
	if err != nil || len(consents) != 1 || consents[0].TemplateID != w.greedy.ID || consents[0].TemplateName != "greedy" || consents[0].CreatedAt.IsZero() {
		t.Fatalf("consents: %+v, %v", consents, err)
	}
	// Neither an administrator nor the template sees or changes them.
	for what, c := range map[string]*sdk.Client{"olga": w.As("olga"), "oscar": w.As("oscar"), "bob": w.As("bob"), "the workspace": session} {
		if got, err := c.TemplateConsents(ctx, "ann"); err == nil {
			t.Errorf("%s reads %v", what, got)
		}
		if err := c.RevokeTemplateConsent(ctx, "ann", w.greedy.ID); err == nil {
			t.Errorf("%s revokes", what)
		}
	}
	if err := ann.RevokeTemplateConsent(ctx, sdk.Me, w.greedy.ID); err != nil {
		t.Fatal(err)
	}
	if err := ann.RevokeTemplateConsent(ctx, sdk.Me, w.greedy.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("revoked again: %v", err)
	}
	if got := w.takenByAgent("ann"); len(got) > 0 {
		t.Errorf("the running agent still gets %v", got)
	}
	if me, err := session.User(ctx, sdk.Me); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("the workspace's session is %s, %v", me.Username, err)
	}
	if !w.Get(ws.ID).LatestBuild.CredentialsWithheld || w.Get(bobs.ID).LatestBuild.CredentialsWithheld {
		t.Error("the wrong builds show withheld credentials")
	}
	// What runs for the user gets nothing; a start of the user's own gives the consent again.
	w.restart(w.As("oscar"), ws)
	if got := w.taken(w.Daemon().Next(), "ann"); len(got) > 0 {
		t.Errorf("an administrator's restart gets %v", got)
	}
	w.Build("ann", ws.ID, sdk.TransitionStart)
	if got := w.takenByAgent("ann"); len(got) != 3 {
		t.Errorf("before the build of the owner's start, its agent gets %v", got)
	}
	if diff := cmp.Diff(kinds, w.taken(w.Daemon().Next(), "ann")); diff != "" {
		t.Errorf("after the owner's start (-want +got):\n%s", diff)
	}
	rows, err := w.As("olga").AuditLogs(ctx, sdk.LogQuery{Q: "resource_type:template_consent username:ann"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows.AuditLogs {
		if row.StatusCode < 300 { // the workspace's session was forbidden to revoke it
			got = append(got, row.Description)
		}
	}
	if diff := cmp.Diff([]string{"ann gave template greedy consent to use credentials", "ann withdrew the consent to template greedy", "ann gave template greedy consent to use credentials"}, got); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

// TestRevokedDuringARestart checks that a start which was asked for before the revocation does not give the consent again.
func TestRevokedDuringARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.victim("ann")
	ws, _ := w.Running("ann", "dev", w.greedy.ID)
	if _, err := w.As("ann").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{}); err != nil {
		t.Fatal(err)
	}
	stop := w.Daemon().Next()
	if err := w.As("ann").RevokeTemplateConsent(t.Context(), sdk.Me, w.greedy.ID); err != nil {
		t.Fatal(err)
	}
	stop.Finish(coderdtest.Built("s"))
	if got := w.taken(w.Daemon().Next(), "ann"); len(got) > 0 {
		t.Errorf("the second half of the restart gets %v", got)
	}
}

// TestConsentsEnd checks that consents go with the template, and with the account.
func TestConsentsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	left := func() (n int) {
		t.Helper()
		if err := w.DB.Pool.QueryRow(ctx, "SELECT count(*) FROM template_consents").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	other := w.Template("other", &provisionerpb.ImportResult{})
	for _, user := range []string{"ann", "bob"} {
		w.victim(user)
		for _, id := range []uuid.UUID{w.greedy.ID, other.ID} {
			ws, _ := w.Running(user, "dev", id)
			w.Build(user, ws.ID, sdk.TransitionDelete)
			w.Daemon().Next().Finish(coderdtest.Built(""))
		}
	}
	if n := left(); n != 4 {
		t.Fatalf("%d consents, want 4", n)
	}
	if err := w.As("olga").DeleteUser(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	if n := left(); n != 2 {
		t.Errorf("%d consents without ann, want 2", n)
	}
	if err := w.As("olga").DeleteTemplate(ctx, other.ID); err != nil {
		t.Fatal(err)
	}
	if n := left(); n != 1 {
		t.Errorf("%d consents without the template, want 1", n)
	}
}

// TestOlderServer checks that a build which a server from before consents stores counts as its initiator's own, unless a policy made it.
func TestOlderServer(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	consents := func() (n int) {
		t.Helper()
		if err := w.DB.Pool.QueryRow(context.WithoutCancel(t.Context()), "SELECT count(*) FROM template_consents").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	insert := func(workspace uuid.UUID, number int, initiator, reason string) {
		t.Helper()
		w.Exec(`INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id, reason)
			SELECT $1, w.id, $3, t.active_version_id, $4, 'start', $5, $6 FROM workspaces w JOIN templates t ON t.id = w.template_id WHERE w.id = $2`,
			uuid.New(), workspace, number, w.JobRow(sdk.JobWorkspaceBuild, sdk.JobSucceeded), w.User(initiator), reason)
	}
	ws := w.WorkspaceRow("ann", "dev")
	insert(ws, 1, "olga", "initiator")
	insert(ws, 2, "ann", "autostart")
	if n := consents(); n != 0 {
		t.Errorf("%d consents by others", n)
	}
	insert(ws, 3, "ann", "cli")
	insert(ws, 4, "ann", "cli")
	if n := consents(); n != 1 {
		t.Errorf("%d consents by ann, want 1", n)
	}
}
