package agents

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/states"
)

// hostKey returns the SSH host key of a workspace's agent, and makes it when there is none. The private key is as it is stored.
func hostKey(ctx context.Context, q *dbsqlc.Queries, keys *states.Keyring, workspace uuid.UUID, agentName string) (dbsqlc.WorkspaceHostKey, error) {
	params := dbsqlc.GetHostKeyParams{WorkspaceID: workspace, AgentName: agentName}
	row, err := q.GetHostKey(ctx, params)
	if database.IsNotFound(err) {
		private, public, makeErr := newHostKey()
		if makeErr != nil {
			return row, makeErr
		}
		if err := q.InsertHostKeyOnce(ctx, dbsqlc.InsertHostKeyOnceParams{
			WorkspaceID: workspace, AgentName: agentName, Sealed: keys.SealSecret(states.HostKeyPlace(workspace, agentName), []byte(private)), PublicKey: public,
		}); err != nil {
			return row, fmt.Errorf("store host key: %w", err)
		}
		row, err = q.GetHostKey(ctx, params)
	}
	if err != nil {
		return row, fmt.Errorf("read host key: %w", err)
	}
	return row, nil
}

func newHostKey() (private, public string, err error) {
	pub, priv, err := ed25519.GenerateKey(nil) // from the system's randomness
	if err != nil {
		return "", "", fmt.Errorf("make host key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		return "", "", fmt.Errorf("encode host key: %w", err)
	}
	sshPub, err := ssh.NewPublicKey(pub)
	if err != nil {
		return "", "", fmt.Errorf("encode host key: %w", err)
	}
	return string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(sshPub))), nil
}

// errNoUserData answers an agent whose template keeps its owner's data from it.
func errNoUserData() error {
	return connect.NewError(connect.CodePermissionDenied, errors.New(`the template gives this agent no data of the workspace's owner (api_key_scope = "no_user_data")`))
}

// GitSSHKey gives an agent its workspace's owner's key for git, unless its template forbids that. The agent holds it in memory only.
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
	if r.opts.Accounts == nil {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("this server keeps no keys for git"))
	}
	public, private, err := r.opts.Accounts.GitSSHKey(ctx, admitted.OwnerID)
	if err != nil {
		return nil, r.fail(ctx, id, "read key for git", err)
	}
	return connect.NewResponse(&agentpb.GitSSHKeyResponse{PublicKey: public, PrivateKey: private.Reveal()}), nil
}
