package agents

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/sdk"
)

// errNoUserData is the answer to an agent whose template withholds its owner's data.
func errNoUserData() error {
	return connect.NewError(connect.CodePermissionDenied, errors.New(`the template gives this agent no data of the workspace's owner (api_key_scope = "no_user_data")`))
}

// GitSSHKey returns the git key of the workspace's owner to an agent, unless its template forbids that. The agent holds it
// in memory only.
func (r *rpc) GitSSHKey(ctx context.Context, req *connect.Request[agentpb.GitSSHKeyRequest]) (*connect.Response[agentpb.GitSSHKeyResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	admitted, err := r.opts.DB.GetAdmittedAgent(ctx, dbsqlc.GetAdmittedAgentParams{ID: &id})
	if err != nil {
		return nil, r.fail(ctx, id, "read agent", err)
	}
	if !admitted.UserData {
		return nil, errNoUserData()
	}
	if admitted.OwnerID == sdk.PrebuildsOwnerID {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("the workspace is prebuilt and belongs to no user yet"))
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

// addSecrets adds the owner's secrets to a manifest, unless the agent's template forbids that.
func (r *rpc) addSecrets(ctx context.Context, m dbsqlc.GetAgentManifestRow, out *agentpb.ManifestResponse) error {
	if !m.WorkspaceAgent.UserData || r.opts.Secrets == nil || m.OwnerID == sdk.PrebuildsOwnerID {
		return nil
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
