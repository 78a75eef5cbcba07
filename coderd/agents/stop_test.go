package agents_test

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// credentials reports whether an agent gets what belongs to its workspace's owner: the key for git, and secrets.
func (s *server) credentials(id uuid.UUID) (key, secrets bool) {
	s.t.Helper()
	c := s.client(id)
	got, err := c.GitSSHKey(s.t.Context(), connect.NewRequest(&agentpb.GitSSHKeyRequest{}))
	key = err == nil && got.Msg.GetPrivateKey() != ""
	m, err := c.Manifest(s.t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	return key, err == nil && len(m.Msg.GetSecrets()) > 0
}

// TestStopScriptsHaveCredentials checks that an agent gets its owner's credentials while its stop scripts run, and none once they have ended or
// the build has.
func TestStopScriptsHaveCredentials(t *testing.T) {
	t.Parallel()
	for _, transition := range []sdk.Transition{sdk.TransitionStop, sdk.TransitionDelete} {
		for name, end := range map[string]func(*world, coderdtest.Build, uuid.UUID){
			"scripts have ended": func(w *world, _ coderdtest.Build, id uuid.UUID) {
				w.Exec(`UPDATE workspace_agents SET lifecycle_state = 'off' WHERE id = $1`, id)
			},
			"scripts took too long": func(w *world, _ coderdtest.Build, id uuid.UUID) {
				w.Exec(`UPDATE workspace_agents SET lifecycle_state = 'shutdown_timeout' WHERE id = $1`, id)
			},
			"build has ended":  func(w *world, b coderdtest.Build, _ uuid.UUID) { w.SetJobRow(b.Job, sdk.JobSucceeded) },
			"build has failed": func(w *world, b coderdtest.Build, _ uuid.UUID) { w.SetJobRow(b.Job, sdk.JobFailed) },
			"workspace is deleted": func(w *world, b coderdtest.Build, _ uuid.UUID) {
				w.Exec(`UPDATE workspaces SET deleted_at = now() WHERE id = $1`, b.Workspace)
			},
			"agent is revoked": func(w *world, b coderdtest.Build, _ uuid.UUID) { w.revoke(b.Workspace) },
		} {
			t.Run(string(transition)+"/"+name, func(t *testing.T) {
				t.Parallel()
				w, b, id := running(t)
				w.opts.Accounts, w.opts.Secrets = fakeAccounts{}, fakeSecrets{}
				w.Exec(`INSERT INTO template_consents (user_id, template_id) SELECT owner_id, template_id FROM workspaces ON CONFLICT DO NOTHING`)
				s := serve(t, agents.New(w.opts))
				stop := w.BuildRow(b.Workspace, transition, sdk.JobRunning)
				w.Exec(`UPDATE workspace_agents SET lifecycle_state = 'shutting_down' WHERE id = $1`, id)
				if key, secrets := s.credentials(id); !key || !secrets {
					t.Errorf("while the scripts run: key %t, secrets %t", key, secrets)
				}
				end(w, stop, id)
				if key, secrets := s.credentials(id); key || secrets {
					t.Errorf("afterwards: key %t, secrets %t", key, secrets)
				}
			})
		}
	}
}

// TestAwaitStart checks that the next start, and nothing before it, admits an agent whose machine outlived the stop.
func TestAwaitStart(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	svc := agents.New(w.opts)
	s := serve(t, svc)
	ask := func(id uuid.UUID) (secret.Token, error) {
		got, err := s.client(id).AwaitStart(t.Context(), connect.NewRequest(&agentpb.AwaitStartRequest{}))
		if err != nil {
			return "", err
		}
		return secret.Token(got.Msg.GetToken()), nil
	}
	expect := func(what string, token secret.Token, want fault.Code) {
		t.Helper()
		if a, err := svc.AuthenticateAgent(t.Context(), token); fault.CodeOf(err) != want || want == "" && a.ID != id {
			t.Errorf("%s: got %v, %v, want %q", what, a, err, want)
		}
	}
	refused := func(what string, id uuid.UUID) {
		t.Helper()
		if _, err := ask(id); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s: got %v, want permission denied", what, err)
		}
	}
	refused("a running workspace's agent", id)
	stop := w.BuildRow(b.Workspace, sdk.TransitionStop, sdk.JobRunning)
	first, err := ask(id)
	if err != nil {
		t.Fatal(err)
	}
	next, err := ask(id) // the answer may have been lost
	if err != nil {
		t.Fatal(err)
	}
	w.Exec(`UPDATE workspace_agents SET lifecycle_state = 'off' WHERE id = $1`, id)
	refused("an agent that has stopped", id)
	expect("replaced token", first, fault.Unauthenticated)
	expect("while the stop runs", next, fault.Unavailable)
	w.revoke(b.Workspace)
	w.SetJobRow(stop.Job, sdk.JobSucceeded)
	expect("while the workspace is stopped", next, fault.Unavailable)
	if _, err := ask(id); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("an agent that the stop has removed: got %v, want unauthenticated", err)
	}
	expect("after it asked again", next, fault.Unavailable)
	expect("first token", secret.Token("token-"+id.String()), fault.Unauthenticated)
	if admitted, err := svc.Admitted(t.Context(), id); err != nil || slices.Contains(admitted, id) {
		t.Errorf("stopped: admitted %v, %v", admitted, err)
	}

	again := w.BuildRow(b.Workspace, sdk.TransitionStart, sdk.JobRunning)
	expect("before the start has the agent", next, fault.Unavailable)
	w.store(again, false, resource(id))
	expect("while the start runs", next, "")
	w.SetJobRow(again.Job, sdk.JobFailed)
	w.revoke(b.Workspace)
	expect("after a start that failed", next, fault.Unavailable)
	again = w.BuildRow(b.Workspace, sdk.TransitionStart, sdk.JobSucceeded)
	w.store(again, true, resource(id))
	expect("after the start", next, "")

	for what, change := range map[string]func(){
		"another start left it out": func() { w.BuildRow(b.Workspace, sdk.TransitionStart, sdk.JobSucceeded) },
		"a deleted workspace":       func() { w.Exec(`UPDATE workspaces SET deleted_at = now() WHERE id = $1`, b.Workspace) },
	} {
		change()
		expect(what, next, fault.Unauthenticated)
	}
}

// TestAwaitStartIsForMachinesOfTheWorkspace checks which agents end with the workspace, and who loses a token that they may have seen.
func TestAwaitStartIsForMachinesOfTheWorkspace(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		transition sdk.Transition
		before     string // run with the agent's id
		ask        bool
		after      string // run with the workspace's id
		kept       bool
	}{
		"deleted":  {sdk.TransitionDelete, "", false, "", false},
		"external": {sdk.TransitionStop, `UPDATE workspace_agents SET external = true WHERE id = $1`, false, "", false},
		"another":  {sdk.TransitionStop, `UPDATE workspace_agents SET token_hash = NULL WHERE id = $1`, false, "", false},
		"shared":   {sdk.TransitionStop, "", true, `UPDATE workspaces SET sharing = '{"x": "use"}' WHERE id = $1`, true},
		"unshared": {sdk.TransitionStop, `UPDATE workspaces SET sharing = '{"x": "use"}'
			WHERE id = (SELECT workspace_id FROM workspace_agents WHERE id = $1)`, true, `UPDATE workspaces SET sharing = '{}' WHERE id = $1`, false},
		"new owner": {sdk.TransitionStop, "", true, `UPDATE workspaces SET owner_id = (SELECT id FROM users WHERE username = 'bob') WHERE id = $1`, false},
		"renamed":   {sdk.TransitionStop, "", true, `UPDATE workspaces SET name = 'other' WHERE id = $1`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b, id := running(t)
			svc := agents.New(w.opts)
			s := serve(t, svc)
			w.BuildRow(b.Workspace, tt.transition, sdk.JobRunning)
			if tt.before != "" {
				w.Exec(tt.before, id)
			}
			got, err := s.client(id).AwaitStart(t.Context(), connect.NewRequest(&agentpb.AwaitStartRequest{}))
			if (err == nil) != tt.ask {
				t.Fatalf("got %v, %v, want a token: %t", got, err, tt.ask)
			}
			if !tt.ask {
				return
			}
			w.Exec(`UPDATE workspace_agents SET lifecycle_state = 'off' WHERE id = $1`, id)
			w.Exec(tt.after, b.Workspace)
			_, err = svc.AuthenticateAgent(t.Context(), secret.Token(got.Msg.GetToken()))
			if kept := fault.CodeOf(err) == fault.Unavailable; kept != tt.kept {
				t.Errorf("got %v, want it to wait: %t", err, tt.kept)
			}
		})
	}
}

// TestOfflineAtTheStop checks what an agent that was offline while its workspace stopped gets with the token that it derives from its own: nothing
// before the next start has the agent, and nothing at all where the agent could not return.
func TestOfflineAtTheStop(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before  string // run with the agent's id before the stop
		asked   bool   // the agent was online, and got a return token
		deleted bool
		after   string // run with the workspace's id after the stop
		kept    bool
	}{
		"stopped":          {kept: true},
		"deleted":          {deleted: true},
		"online":           {asked: true},
		"unshared running": {before: unshare},
		"unshared stopped": {before: `UPDATE workspaces SET sharing = '{"x": "use"}' WHERE id = (SELECT workspace_id FROM workspace_agents WHERE id = $1)`, after: `UPDATE workspaces SET sharing = '{}' WHERE id = $1`},
		"new owner":        {after: `UPDATE workspaces SET owner_id = (SELECT id FROM users WHERE username = 'bob') WHERE id = $1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b, id := running(t)
			svc := agents.New(w.opts)
			own, m := secret.Token("token-"+id.String()), &machine{w, svc, b, id}
			m.expect(t, "while the workspace runs", own.Offline(), fault.Unauthenticated)
			for sql := range strings.SplitSeq(tt.before, ";") {
				if sql != "" {
					w.Exec(sql, id)
				}
			}
			w.store(b, true, resource(id)) // a later report of the same build
			transition := sdk.TransitionStop
			if tt.deleted {
				transition = sdk.TransitionDelete
			}
			stop := w.BuildRow(b.Workspace, transition, sdk.JobRunning)
			if tt.asked {
				if _, err := serve(t, svc).client(id).AwaitStart(t.Context(), connect.NewRequest(&agentpb.AwaitStartRequest{})); err != nil {
					t.Fatal(err)
				}
			}
			m.expect(t, "while the stop runs", own.Offline(), fault.Unauthenticated)
			w.revoke(b.Workspace)
			w.SetJobRow(stop.Job, sdk.JobSucceeded)
			if tt.deleted {
				w.Exec(`UPDATE workspaces SET deleted_at = now() WHERE id = $1`, b.Workspace)
			}
			if tt.after != "" {
				w.Exec(tt.after, b.Workspace)
			}
			m.expect(t, "its own token", own, fault.Unauthenticated)
			if admitted, err := svc.Admitted(t.Context(), id); err != nil || slices.Contains(admitted, id) {
				t.Errorf("stopped: admitted %v, %v", admitted, err)
			}
			waits := map[bool]fault.Code{true: fault.Unavailable, false: fault.Unauthenticated}[tt.kept]
			m.expect(t, "while the workspace is stopped", own.Offline(), waits)
			if tt.kept {
				m.returns(t, own)
			}
		})
	}
}

// machine is a workspace's machine, whose agent was offline at the stop.
type machine struct {
	*world
	svc   *agents.Service
	build coderdtest.Build
	id    uuid.UUID
}

// expect checks what a token is worth: "" means that it is the agent's.
func (m *machine) expect(t *testing.T, what string, token secret.Token, want fault.Code) {
	t.Helper()
	if a, err := m.svc.AuthenticateAgent(t.Context(), token); fault.CodeOf(err) != want || want == "" && a.ID != m.id {
		t.Errorf("%s: got %v, %v, want %q", what, a, err, want)
	}
}

// returns starts the workspace twice. The agent whose own token is given returns both times, until another machine comes.
func (m *machine) returns(t *testing.T, own secret.Token) {
	t.Helper()
	// The next start admits it, with a new token for machines that the start makes.
	again := m.BuildRow(m.build.Workspace, sdk.TransitionStart, sdk.JobSucceeded)
	m.expect(t, "before the start has the agent", own.Offline(), fault.Unauthenticated)
	next := secret.Token("another-" + m.id.String())
	res := resource(m.id)
	res.Agents[0].Token = next.Reveal()
	m.store(again, true, res)
	m.expect(t, "after the start", own.Offline(), "")
	m.expect(t, "its own token after the start", own, fault.Unauthenticated)

	// It returns again with the same token if it is offline at the next stop, too, and not once another machine has come with the build's.
	m.BuildRow(m.build.Workspace, sdk.TransitionStop, sdk.JobSucceeded)
	m.revoke(m.build.Workspace)
	m.expect(t, "after another stop", own.Offline(), fault.Unavailable)
	m.expect(t, "that of a machine that never came", next.Offline(), fault.Unauthenticated)
	again = m.BuildRow(m.build.Workspace, sdk.TransitionStart, sdk.JobSucceeded)
	m.store(again, true, res)
	m.expect(t, "the build's machine", next, "")
	m.expect(t, "the former machine", own.Offline(), fault.Unauthenticated)
}

const unshare = `UPDATE workspaces SET sharing = '{"x": "use"}' WHERE id = (SELECT workspace_id FROM workspace_agents WHERE id = $1);` +
	`UPDATE workspaces SET sharing = '{}' WHERE id = (SELECT workspace_id FROM workspace_agents WHERE id = $1)`

// TestAsksLateAgentsToStop: an agent that connects while its workspace stops is asked to run its stop scripts, as those were that were online.
func TestAsksLateAgentsToStop(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	s := serve(t, agents.New(w.opts))
	w.BuildRow(b.Workspace, sdk.TransitionStop, sdk.JobRunning)
	stream := s.client(id).Connect(t.Context())
	if err := stream.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: &agentpb.Hello{ProtocolVersion: 1}}}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Receive()
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		if m.GetShutdown() != nil {
			return
		}
	}
}
