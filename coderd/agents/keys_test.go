package agents_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestGitSSHKey checks that an agent gets the key of its workspace's owner while it is admitted.
func TestGitSSHKey(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	w.opts.Accounts = fakeAccounts{}
	c := serve(t, agents.New(w.opts)).client(id)
	got, err := c.GitSSHKey(t.Context(), connect.NewRequest(&agentpb.GitSSHKeyRequest{}))
	if err != nil || got.Msg.GetPublicKey() != "public of "+w.owner.String() || got.Msg.GetPrivateKey() != "private of "+w.owner.String() {
		t.Errorf("got %v (%v), want the owner's pair", got, err)
	}
	w.revoke(b.Workspace)
	if _, err := c.GitSSHKey(t.Context(), connect.NewRequest(&agentpb.GitSSHKeyRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a revoked agent: %v, want permission denied", err)
	}
}

// TestNoUserData checks that an agent whose template sets api_key_scope = "no_user_data" gets nothing of its owner's.
func TestNoUserData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.opts.Accounts, w.opts.Secrets = fakeAccounts{}, fakeSecrets{}
	b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded)
	id := uuid.New()
	r := resource(id)
	r.Agents[0].NoUserData = true
	w.store(b, true, r)
	c := serve(t, agents.New(w.opts)).client(id)
	if got, err := c.GitSSHKey(t.Context(), connect.NewRequest(&agentpb.GitSSHKeyRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("the key for git: %v, %v, want permission denied", got, err)
	}
	login := &agentpb.ExternalAuthRequest{Of: &agentpb.ExternalAuthRequest_ProviderId{ProviderId: "forge"}}
	if got, err := c.ExternalAuth(t.Context(), connect.NewRequest(login)); connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "no_user_data") {
		t.Errorf("a login: %v, %v, want permission denied", got, err)
	}
	if m, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{})); err != nil || len(m.Msg.GetSecrets()) != 0 {
		t.Errorf("the manifest has %d secrets: %v", len(m.Msg.GetSecrets()), err)
	}
}

// TestPrebuiltGetsNothing checks that the agent of a prebuilt workspace may be on the mesh, that no user may connect to it, and that it gets no keys,
// logins and secrets until a user claims the workspace.
func TestPrebuiltGetsNothing(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	w.opts.Accounts, w.opts.Secrets = fakeAccounts{}, fakeSecrets{}
	w.Exec("UPDATE workspaces SET owner_id = $2 WHERE id = $1", b.Workspace, sdk.PrebuildsOwnerID)
	service := agents.New(w.opts)
	c := serve(t, service).client(id)
	if admitted, err := service.Admitted(t.Context(), id); err != nil || len(admitted) != 1 {
		t.Errorf("admitted: %v, %v", admitted, err)
	}
	for _, user := range []string{"ann", "olga"} {
		if ids, err := service.Reachable(t.Context(), w.User(user), id); err != nil || len(ids) != 0 {
			t.Errorf("%s reaches %v, %v", user, ids, err)
		}
	}
	if got, err := c.GitSSHKey(t.Context(), connect.NewRequest(&agentpb.GitSSHKeyRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("the key for git: %v, %v, want permission denied", got, err)
	}
	login := &agentpb.ExternalAuthRequest{Of: &agentpb.ExternalAuthRequest_ProviderId{ProviderId: "forge"}}
	if got, err := c.ExternalAuth(t.Context(), connect.NewRequest(login)); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a login: %v, %v, want permission denied", got, err)
	}
	if m, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{})); err != nil || len(m.Msg.GetSecrets()) != 0 || m.Msg.GetOwnerName() != sdk.PrebuildsOwner {
		t.Errorf("the manifest is %v, %v", m, err)
	}
	w.Exec("UPDATE workspaces SET owner_id = $2 WHERE id = $1", b.Workspace, w.owner)
	if got, err := c.GitSSHKey(t.Context(), connect.NewRequest(&agentpb.GitSSHKeyRequest{})); err != nil || got.Msg.GetPublicKey() != "public of "+w.owner.String() {
		t.Errorf("after the claim: %v, %v", got, err)
	}
	if m, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{})); err != nil || len(m.Msg.GetSecrets()) != 1 {
		t.Errorf("the manifest after the claim: %v, %v", m, err)
	}
}

// TestSecretsInTheManifest checks that an agent gets the secrets of its workspace's owner, and none before the build has described it.
func TestSecretsInTheManifest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.opts.Secrets = fakeSecrets{}
	b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobRunning)
	id := uuid.New()
	w.store(b, false, resource(id))
	c := serve(t, agents.New(w.opts)).client(id)
	m, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{AcceptsPending: true}))
	if err != nil || !m.Msg.GetPending() || len(m.Msg.GetSecrets()) != 0 {
		t.Errorf("pending: %v, %v", m, err)
	}
	w.store(b, true, resource(id))
	m, err = c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil || len(m.Msg.GetSecrets()) != 1 {
		t.Fatalf("got %v, %v; want one secret", m, err)
	}
	if s := m.Msg.GetSecrets()[0]; s.GetName() != "key" || s.GetEnvName() != "KEY" || s.GetFilePath() != "~/key" || string(s.GetValue()) != "secret of "+w.owner.String() {
		t.Errorf("got %v", s)
	}
}
