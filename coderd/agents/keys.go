package agents

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// mayHaveCredentials returns an RPC error unless an agent may have the credentials of its workspace's owner.
func mayHaveCredentials(a dbsqlc.GetAdmittedAgentRow) error {
	if reason := noCredentials(a); reason != "" {
		return connect.NewError(connect.CodePermissionDenied, errors.New(reason))
	}
	return nil
}

// noCredentials returns why an agent may not have the credentials of its workspace's owner, or "" if it may.
func noCredentials(a dbsqlc.GetAdmittedAgentRow) string {
	switch {
	case !a.UserData:
		return `the template gives this agent no data of the workspace's owner (api_key_scope = "no_user_data")`
	case a.OwnerID == sdk.PrebuildsOwnerID:
		return "the workspace is prebuilt and belongs to no user yet"
	case !a.Consented:
		return fmt.Sprintf("%[1]s has not started a workspace of this template themselves, or has revoked that, so it gets no credentials of theirs; %[1]s gives them with: coder restart %[2]s", a.OwnerName, shell.POSIX(a.WorkspaceName))
	}
	return ""
}

// GitSSHKey returns the git key of the workspace's owner to an agent, unless its template forbids that. The agent holds
// it in memory only.
func (r *rpc) GitSSHKey(
	ctx context.Context, req *connect.Request[agentpb.GitSSHKeyRequest],
) (*connect.Response[agentpb.GitSSHKeyResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	admitted, err := r.opts.DB.GetAdmittedAgent(ctx, dbsqlc.GetAdmittedAgentParams{ID: &id, Stopping: true})
	if err != nil {
		return nil, r.fail(ctx, id, "read agent", err)
	}
	if err := mayHaveCredentials(admitted); err != nil {
		return nil, err
	}
	if r.opts.Accounts == nil {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("this server does not store git keys"))
	}
	public, private, err := r.opts.Accounts.GitSSHKey(ctx, admitted.OwnerID)
	if err != nil {
		return nil, r.fail(ctx, id, "read key for git", err)
	}
	return connect.NewResponse(&agentpb.GitSSHKeyResponse{PublicKey: public, PrivateKey: private.Reveal()}), nil
}

// addSecrets adds the owner's secrets to a manifest, unless the agent's template forbids that, the owner has not
// consented, or the workspace has stopped.
func (r *rpc) addSecrets(ctx context.Context, m dbsqlc.GetAgentManifestRow, out *agentpb.ManifestResponse) error {
	if !m.WorkspaceAgent.UserData || !m.Consented || r.opts.Secrets == nil || m.OwnerID == sdk.PrebuildsOwnerID {
		return nil
	}
	if _, err := r.opts.DB.GetAdmittedAgent(ctx, dbsqlc.GetAdmittedAgentParams{
		ID: &m.WorkspaceAgent.ID, Stopping: true,
	}); err != nil {
		if database.IsNotFound(err) {
			return nil // its stop scripts have ended
		}
		return r.fail(ctx, m.WorkspaceAgent.ID, "read agent", err)
	}
	secrets, err := r.opts.Secrets.SecretsOf(ctx, m.OwnerID)
	if err != nil {
		return r.fail(ctx, m.WorkspaceAgent.ID, "read secrets", err)
	}
	for _, secret := range secrets {
		out.Secrets = append(out.Secrets, &agentpb.Secret{
			Name: secret.Name, EnvName: secret.EnvName, FilePath: secret.FilePath, Value: []byte(secret.Value.Reveal()),
		})
	}
	return nil
}
