package coderd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// finish ends the next build.
func finish(s *coderdtest.Server, result *provisionerpb.Result) *coderdtest.Job {
	job := s.Daemon().Next()
	job.Finish(result)
	return job
}

// inUse is a workspace of ann's in which everything is set that a transfer must take away: shares, ports, a schedule, favorites, tokens.
func inUse(s *coderdtest.Server, template uuid.UUID) (ws sdk.Workspace, agent uuid.UUID) {
	s.T.Helper()
	ws = s.Workspace("ann", "dev", template, sdk.ParameterValue{Name: "key", Value: "sk-secret"}, sdk.ParameterValue{Name: "plain", Value: "q"})
	agent = uuid.New()
	finish(s, coderdtest.Built("state 1", coderdtest.Resource(agent)))
	schedule := "CRON_TZ=UTC 0 9 * * 1-5"
	for _, err := range []error{
		s.As("ann").UpdateWorkspaceACL(s.T.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{s.User("guest").String(): sdk.RoleAdmin}}),
		second(s.As("ann").SharePort(s.T.Context(), ws.ID, sdk.UpsertPortShareRequest{AgentName: "main", Port: 80, ShareLevel: sdk.SharePublic})),
		s.As("ann").UpdateAutostart(s.T.Context(), ws.ID, sdk.UpdateAutostartRequest{Schedule: &schedule}),
		s.As("ann").UpdateAutomaticUpdates(s.T.Context(), ws.ID, sdk.UpdateAutomaticUpdatesRequest{AutomaticUpdates: sdk.UpdatesAlways}),
		s.As("ann").FavoriteWorkspace(s.T.Context(), ws.ID),
		s.As("olga").FavoriteWorkspace(s.T.Context(), ws.ID),
	} {
		if err != nil {
			s.T.Fatal(err)
		}
	}
	s.Exec(`INSERT INTO api_keys (id, user_id, secret_hash, kind, workspace_id, lifetime_seconds, expires_at) VALUES ('0123456789', $1, sha256('x'), 'workspace', $2, 60, now() + interval '1 hour')`, s.User("ann"), ws.ID)
	return ws, agent
}

// transferIsAudited checks that the audit log has olga's transfer once.
func transferIsAudited(s *coderdtest.Server, from, to uuid.UUID) {
	t := s.T
	t.Helper()
	log, err := s.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Q: "action:transfer"})
	if err != nil || len(log.AuditLogs) != 1 {
		t.Fatalf("audit log: %+v, %v", log, err)
	}
	row := log.AuditLogs[0]
	if row.Description != "olga transferred workspace bob/dev" || row.StatusCode != 200 || row.Diff["owner_id"].Old != from.String() || row.Diff["owner_id"].New != to.String() {
		t.Errorf("audit row: %q %d %+v", row.Description, row.StatusCode, row.Diff)
	}
}

// TestTransfer transfers a running workspace: it is stopped as ann's, becomes bob's when the stop has succeeded, and nothing of ann's is left in
// what the server gives to bob, nor of the workspace in what ann has.
func TestTransfer(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	template := s.Template("process", &provisionerpb.ImportResult{Parameters: []*provisionerpb.Parameter{
		{Name: "key", Type: "string", DefaultValue: "none", Mutable: true, Styling: `{"mask_input":true}`}, {Name: "plain", Type: "string", DefaultValue: "p", Mutable: true},
	}})
	ann, bob := s.User("ann"), s.User("bob")
	ws, agent := inUse(s, template.ID)

	pending, err := s.As("olga").TransferWorkspace(t.Context(), ws.ID, sdk.TransferWorkspaceRequest{Owner: "bob"})
	if err != nil || pending.OwnerName != "ann" || pending.LatestBuild.Transition != sdk.TransitionStop || pending.LatestBuild.InitiatorName != "olga" {
		t.Fatalf("transfer of a running workspace: %s, %s by %s, %v", pending.OwnerName, pending.LatestBuild.Transition, pending.LatestBuild.InitiatorName, err)
	}
	if _, err := s.As("olga").TransferWorkspace(t.Context(), ws.ID, sdk.TransferWorkspaceRequest{Owner: "bob"}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("transfer while it stops: %v, want conflict", err)
	}
	if _, err := s.As("bob").Workspace(t.Context(), ws.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the new owner reads it before it is stopped: %v", err)
	}
	// The state holds the key, and is not a way to it.
	const state = `{"version": 4, "resources": [{"mode": "data", "type": "coder_parameter", "name": "key", "instances": [{"attributes":
		{"name": "key", "value": "sk-secret", "default": "none", "mutable": true, "styling": "{\"mask_input\":true}"}}]}]}`
	stop := finish(s, coderdtest.Built(state)).GetWorkspaceBuild()
	if got := stop.GetMetadata().GetOwnerName(); got != "ann" {
		t.Errorf("it was stopped as %s's", got)
	}
	for _, p := range stop.GetParameters() {
		if p.GetName() == "key" && p.GetValue() != "sk-secret" {
			t.Errorf("the stop had %q as the key", p.GetValue())
		}
	}

	got, err := s.As("bob").Workspace(t.Context(), ws.ID)
	if err != nil || got.OwnerName != "bob" || !got.Stopped() || got.Shared || got.AutostartSchedule != nil || got.AutomaticUpdates != sdk.UpdatesNever || !got.Permissions.Share || got.Permissions.Transfer {
		t.Fatalf("bob's workspace: %+v, %v", got, err)
	}
	for _, former := range []string{"ann", "guest"} {
		if _, err := s.As(former).Workspace(t.Context(), ws.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s reads it after the transfer: %v", former, err)
		}
		if err := s.Agents.MayConnect(t.Context(), rbac.Actor{UserID: s.User(former), Memberships: []rbac.Membership{{Organization: s.Org}}}, agent); err == nil {
			t.Errorf("%s may connect after the transfer", former)
		}
	}
	for what, query := range map[string]string{
		"port shares": `SELECT count(*) FROM workspace_port_shares WHERE workspace_id = $1`, "favorites": `SELECT count(*) FROM workspace_favorites WHERE workspace_id = $1`,
		"session tokens": `SELECT count(*) FROM api_keys WHERE workspace_id = $1`, "agents' tokens": `SELECT count(*) FROM workspace_agents WHERE workspace_id = $1 AND token_hash IS NOT NULL`,
	} {
		if err := s.Counts(0, query, ws.ID)(); err != nil {
			t.Errorf("%s left: %v", what, err)
		}
	}
	builds, err := s.As("bob").Builds(t.Context(), ws.ID)
	if err != nil || len(builds) != 2 {
		t.Fatalf("builds: %d, %v", len(builds), err)
	}
	for _, b := range builds {
		params, err := s.As("bob").BuildParameters(t.Context(), b.ID)
		if diff := cmp.Diff([]sdk.BuildParameter{{Name: "plain", Value: "q"}}, params); err != nil || diff != "" {
			t.Errorf("parameters of build %d that bob reads: %v (-want +got):\n%s", b.BuildNumber, err, diff)
		}
	}
	if _, err := s.As("bob").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart}); err != nil {
		t.Fatal(err)
	}
	start := finish(s, coderdtest.Built("state 3")).GetWorkspaceBuild()
	if start.GetMetadata().GetOwnerName() != "bob" || string(start.GetState()) != state {
		t.Errorf("the first start has the owner %s and the state %q", start.GetMetadata().GetOwnerName(), start.GetState())
	}
	for _, p := range start.GetParameters() {
		if strings.Contains(p.GetValue(), "sk-secret") {
			t.Errorf("the parameter %s came from the former owner", p.GetName())
		}
	}
	if err := s.As("olga").DeleteUser(t.Context(), "ann"); err != nil {
		t.Errorf("the former owner cannot be deleted: %v", err)
	}
	transferIsAudited(s, ann, bob)
}

// TestTransferTellsBoth checks what both users are told.
func TestTransferTellsBoth(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ws, _ := s.Running("ann", "dev", s.Template("process", nil).ID)
	s.User("bob")
	s.Build("ann", ws.ID, sdk.TransitionStop)
	finish(s, coderdtest.Built("stopped"))
	got, err := s.As("olga").TransferWorkspace(t.Context(), ws.ID, sdk.TransferWorkspaceRequest{Owner: "bob", Name: "moved"})
	if err != nil || got.OwnerName != "bob" || got.Name != "moved" || got.LatestBuild.BuildNumber != 2 {
		t.Fatalf("transfer of a stopped workspace: %s/%s, build %d, %v", got.OwnerName, got.Name, got.LatestBuild.BuildNumber, err)
	}
	if err := s.Notifications.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	for who, want := range map[string]string{"ann": `Workspace "dev" now belongs to bob`, "bob": `Workspace "moved" was transferred to you`, "olga": ""} {
		inbox, err := s.As(who).Inbox(t.Context(), "format=plaintext")
		title := ""
		for _, n := range inbox.Notifications {
			title += n.Title
		}
		if err != nil || title != want {
			t.Errorf("%s was told %q, %v, want %q", who, title, err, want)
		}
	}
}

// TestTransferIsRefused: who may not transfer a workspace, who may not get it, and in which states it stays. Nothing of a refused request happens.
func TestTransferIsRefused(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	template := s.Template("process", nil)
	ws, _ := s.Running("ann", "dev", template.ID)
	s.User("bob")
	if err := s.As("ann").UpdateWorkspaceACL(t.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{s.User("mate").String(): sdk.RoleAdmin}}); err != nil {
		t.Fatal(err)
	}
	s.Exec(`UPDATE users SET roles = ARRAY['user-admin'] WHERE id = $1`, s.User("una"))
	for who, want := range map[string]fault.Code{"ann": fault.Forbidden, "mate": fault.Forbidden, "tom": fault.Forbidden, "una": fault.Forbidden, "bob": fault.Forbidden} {
		if _, err := s.As(who).TransferWorkspace(t.Context(), ws.ID, sdk.TransferWorkspaceRequest{Owner: "bob"}); fault.CodeOf(err) != want {
			t.Errorf("%s transfers ann's workspace: %v, want %s", who, err, want)
		}
	}
	s.Exec(`UPDATE users SET status = 'suspended' WHERE id = $1`, s.User("sue"))
	s.Exec(`DELETE FROM organization_members WHERE user_id = $1`, s.User("outsider"))
	s.Exec(`UPDATE users SET deleted_at = now() WHERE id = $1`, s.User("gone"))
	s.Exec(`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) VALUES ($1, $2, $3, $4, 'DEV')`, uuid.New(), s.Org, s.User("has"), template.ID)
	closed := s.Template("closed", nil)
	s.Exec(`UPDATE templates SET sharing = jsonb_build_object($2::text, 'use') WHERE id = $1`, closed.ID, s.User("cyd"))
	private, _ := s.Running("cyd", "private", closed.ID)
	for name, row := range map[string]struct {
		workspace uuid.UUID
		req       sdk.TransferWorkspaceRequest
		want      fault.Code
	}{
		"its owner":       {ws.ID, sdk.TransferWorkspaceRequest{Owner: "ann"}, fault.Conflict},
		"nobody":          {ws.ID, sdk.TransferWorkspaceRequest{}, fault.Invalid},
		"an unknown user": {ws.ID, sdk.TransferWorkspaceRequest{Owner: "none"}, fault.Invalid},
		"an outsider":     {ws.ID, sdk.TransferWorkspaceRequest{Owner: "outsider"}, fault.Invalid},
		"a deleted user":  {ws.ID, sdk.TransferWorkspaceRequest{Owner: s.User("gone").String()}, fault.Invalid},
		"the system":      {ws.ID, sdk.TransferWorkspaceRequest{Owner: sdk.PrebuildsOwnerID.String()}, fault.Invalid},
		"a suspended one": {ws.ID, sdk.TransferWorkspaceRequest{Owner: "sue"}, fault.Conflict},
		"a taken name":    {ws.ID, sdk.TransferWorkspaceRequest{Owner: "has"}, fault.Conflict},
		"a bad name":      {ws.ID, sdk.TransferWorkspaceRequest{Owner: "bob", Name: "a b"}, fault.Invalid},
		"no template":     {private.ID, sdk.TransferWorkspaceRequest{Owner: "bob"}, fault.Conflict},
		"no workspace":    {uuid.New(), sdk.TransferWorkspaceRequest{Owner: "bob"}, fault.NotFound},
	} {
		if _, err := s.As("olga").TransferWorkspace(t.Context(), row.workspace, row.req); fault.CodeOf(err) != row.want {
			t.Errorf("to %s: %v, want %s", name, err, row.want)
		}
	}
	// The answer does not tell whether someone outside of the organization exists, nor the name of an account by its id.
	for _, asked := range []string{"none", "OUTSIDER", s.User("outsider").String(), uuid.NewString()} {
		_, err := s.As("olga").TransferWorkspace(t.Context(), ws.ID, sdk.TransferWorkspaceRequest{Owner: asked})
		if want := asked + " is not a member of the workspace's organization."; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %s: %v, want %q", asked, err, want)
		}
	}
	if got := s.Get(ws.ID); got.OwnerName != "ann" || got.LatestBuild.BuildNumber != 1 || !got.Shared {
		t.Errorf("after what was refused: %s's, build %d, shared %t", got.OwnerName, got.LatestBuild.BuildNumber, got.Shared)
	}
	if _, err := s.As("olga").TransferWorkspace(t.Context(), ws.ID, sdk.TransferWorkspaceRequest{Owner: "has", Name: "dev-2"}); err != nil {
		t.Errorf("with another name: %v", err)
	}
}

// TestTransferIsDecidedAgain: between the request and the end of the stop, the stop fails or is canceled, or the initiator or the new owner lose what the
// transfer needs. The workspace stays with its owner.
func TestTransferIsDecidedAgain(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	template := s.Template("process", nil)
	admins := 0
	for name, c := range map[string]struct {
		change func(admin, bob, ws uuid.UUID)
		result *provisionerpb.Result
		want   string // the owner
	}{
		"unchanged": {func(uuid.UUID, uuid.UUID, uuid.UUID) {}, coderdtest.Built("s"), "bob"},
		"failed":    {func(uuid.UUID, uuid.UUID, uuid.UUID) {}, &provisionerpb.Result{Error: "boom"}, "ann"},
		"canceled":  {func(uuid.UUID, uuid.UUID, uuid.UUID) {}, &provisionerpb.Result{Canceled: true}, "ann"},
		"initiator demoted": {func(admin, _, _ uuid.UUID) {
			s.Exec(`UPDATE organization_members SET roles = '{}' WHERE user_id = $1`, admin)
		}, coderdtest.Built("s"), "ann"},
		"initiator suspended": {func(admin, _, _ uuid.UUID) { s.Exec(`UPDATE users SET status = 'suspended' WHERE id = $1`, admin) }, coderdtest.Built("s"), "ann"},
		"new owner suspended": {func(_, bob, _ uuid.UUID) { s.Exec(`UPDATE users SET status = 'suspended' WHERE id = $1`, bob) }, coderdtest.Built("s"), "ann"},
		"new owner expelled":  {func(_, bob, _ uuid.UUID) { s.Exec(`DELETE FROM organization_members WHERE user_id = $1`, bob) }, coderdtest.Built("s"), "ann"},
		"name taken meanwhile": {func(_, bob, _ uuid.UUID) {
			s.Exec(`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) VALUES ($1, $2, $3, $4, 'name-taken-meanwhile')`, uuid.New(), s.Org, bob, template.ID)
		}, coderdtest.Built("s"), "ann"},
	} {
		t.Run(name, func(t *testing.T) {
			s.T = t
			admins++
			admin, to := fmt.Sprintf("admin-%d", admins), fmt.Sprintf("bob-%d", admins)
			s.Exec(`UPDATE organization_members SET roles = ARRAY['organization-admin'] WHERE user_id = $1`, s.User(admin))
			ws, _ := s.Running("ann", strings.ReplaceAll(name, " ", "-"), template.ID)
			s.User(to)
			if _, err := s.As(admin).TransferWorkspace(t.Context(), ws.ID, sdk.TransferWorkspaceRequest{Owner: to}); err != nil {
				t.Fatal(err)
			}
			job := s.Daemon().Next()
			c.change(s.User(admin), s.User(to), ws.ID)
			job.Finish(c.result)
			got := s.Get(ws.ID)
			if want := strings.Replace(c.want, "bob", to, 1); got.OwnerName != want || got.LatestBuild.BuildNumber != 2 || !got.LatestBuild.Job.Status.Ended() {
				t.Errorf("the owner is %s, and build %d is %s, want %s", got.OwnerName, got.LatestBuild.BuildNumber, got.LatestBuild.Job.Status, want)
			}
		})
	}
	s.T = t
}

// TestTransferEndsWhatIsOpen: what the former owner and their guest have open ends, on a server that runs as in production.
func TestTransferEndsWhatIsOpen(t *testing.T) {
	s := coderdtest.Start(t, func(o *coderd.Options) { o.WildcardHost = appHosts })
	template := s.Template("process", nil).ID
	p := newPerson(t, s, "ann", template)
	guest := s.User("guest")
	s.User("bob")
	if err := s.As("ann").UpdateWorkspaceACL(t.Context(), p.workspace, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{guest.String(): sdk.RoleUse}}); err != nil {
		t.Fatal(err)
	}
	own, shared := open(t, s, p, s.Session("ann").Reveal()), open(t, s, p, s.Session("guest").Reveal())
	own.stands(t)
	shared.stands(t)
	s.Exec(`UPDATE provisioner_jobs SET status = 'succeeded', completed_at = now() WHERE id = (SELECT job_id FROM workspace_builds WHERE id = $1)`, p.build)
	if _, err := s.As("olga").TransferWorkspace(t.Context(), p.workspace, sdk.TransferWorkspaceRequest{Owner: "bob"}); err != nil {
		t.Fatal(err)
	}
	finish(s, coderdtest.Built("stopped"))
	own.without(t)
	shared.without(t)
}
