package agents_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/coderd/agents"
	"github.com/codermesh/codermesh/internal/sdk"
)

// A workspace's agent has one host key, whatever is left of its machine and whatever id Terraform gives it. It is known
// before the agent has connected, and nobody else's.
func TestHostKeyStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := serve(t, agents.New(w.opts))
	key := func(workspace uuid.UUID) (public, private string) {
		t.Helper()
		id := uuid.New()
		w.store(w.build(workspace, sdk.TransitionStart, sdk.JobSucceeded), true, resource(id))
		m, err := s.client(id).Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return w.agent(id).SshHostKey, m.Msg.GetSshHostPrivateKey()
	}
	dev := w.workspace(w.owner, "dev")
	public, private := key(dev)
	signer, err := ssh.ParsePrivateKey([]byte(private))
	if err != nil {
		t.Fatal(err)
	}
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(public))
	if err != nil || string(want.Marshal()) != string(signer.PublicKey().Marshal()) {
		t.Errorf("the API says %q (%v), which is not the public half of what the agent gets", public, err)
	}
	if again, same := key(dev); again != public || same != private {
		t.Errorf("after a rebuild with another agent id: %q, want %q", again, public)
	}
	if others, _ := key(w.workspace(w.owner, "second")); others == public {
		t.Error("two workspaces have one host key")
	}
	var plain, sealed int
	if err := w.db.Pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE private_key <> ''), count(*) FILTER (WHERE length(sealed) > 100) FROM workspace_host_keys`).
		Scan(&plain, &sealed); err != nil || plain != 0 || sealed != 2 {
		t.Errorf("%d host keys are stored in clear and %d encrypted, %v; want 0 and 2", plain, sealed, err)
	}
}

// An agent gets the key of its workspace's owner, while it is admitted.
func TestGitSSHKey(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	w.opts.Accounts = fakeAccounts{}
	c := serve(t, agents.New(w.opts)).client(id)
	got, err := c.GitSSHKey(t.Context(), connect.NewRequest(&agentpb.GitSSHKeyRequest{}))
	if err != nil || got.Msg.GetPublicKey() != "public of "+w.owner.String() || got.Msg.GetPrivateKey() != "private of "+w.owner.String() {
		t.Errorf("got %v (%v), want the owner's pair", got, err)
	}
	w.revoke(b.workspace)
	if _, err := c.GitSSHKey(t.Context(), connect.NewRequest(&agentpb.GitSSHKeyRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a revoked agent: %v, want permission denied", err)
	}
}

// TestNoUserData has an agent whose template says api_key_scope = "no_user_data": it gets nothing of its owner's.
func TestNoUserData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.opts.Accounts = fakeAccounts{}
	b := w.build(w.workspace(w.owner, "dev"), sdk.TransitionStart, sdk.JobSucceeded)
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
	if _, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{})); err != nil {
		t.Errorf("the manifest: %v", err)
	}
}
