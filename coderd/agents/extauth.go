package agents

import (
	"context"
	"encoding/json"
	"errors"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Bounds of an agent's questions, in bytes.
const (
	maxGitURL     = 2048
	maxProviderID = 64
)

// ExternalAuth returns the tokens that sign the workspace's owner in at other services to an agent, while the workspace
// runs or its stop scripts do, and the owner is active. The agent holds them in memory only.
func (r *rpc) ExternalAuth(
	ctx context.Context, req *connect.Request[agentpb.ExternalAuthRequest],
) (*connect.Response[agentpb.ExternalAuthResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	if len(req.Msg.GetUrl()) > maxGitURL || len(req.Msg.GetProviderId()) > maxProviderID {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the URL or the id is too long"))
	}
	if req.Msg.GetUrl() == "" && req.Msg.GetProviderId() == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("a URL or an id is required"))
	}
	query, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	admitted, err := r.opts.DB.GetAdmittedAgent(query, dbsqlc.GetAdmittedAgentParams{ID: &id, Stopping: true})
	if err != nil {
		return nil, r.fail(ctx, id, "read agent", err)
	}
	if err := mayHaveCredentials(admitted); err != nil {
		return nil, err
	}
	if r.opts.Accounts != nil && r.opts.Accounts.Active(query, admitted.OwnerID) != nil {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("the workspace's owner is not active"))
	}
	if r.opts.ExternalAuth == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("this server has no external login providers"))
	}
	var c extauth.Credential
	if req.Msg.GetUrl() != "" {
		c, err = r.opts.ExternalAuth.ForURL(ctx, admitted.OwnerID, req.Msg.GetUrl())
	} else {
		c, err = r.opts.ExternalAuth.ForProvider(ctx, admitted.OwnerID, req.Msg.GetProviderId())
	}
	switch f := fault.As(err); {
	case f != nil && f.Code == fault.NotFound:
		return nil, connect.NewError(connect.CodeNotFound, errors.New(f.Error()))
	case f != nil && f.Code == fault.Unavailable:
		return nil, connect.NewError(connect.CodeUnavailable, errors.New(f.Error()))
	case err != nil:
		return nil, r.fail(ctx, id, "find login", err)
	}
	out := &agentpb.ExternalAuthResponse{
		ProviderId: c.Provider, DisplayName: c.DisplayName, AuthenticateUrl: c.PageURL, AccessToken: c.Token.Reveal(),
		Username: c.Username,
	}
	if len(c.Extra) > 0 {
		if out.Extra, err = json.Marshal(c.Extra); err != nil {
			return nil, r.fail(ctx, id, "encode login", err)
		}
	}
	return connect.NewResponse(out), nil
}
