package agents

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// IDToken returns an ID token to an agent for an audience that its template allows, while the workspace runs or its
// stop scripts do. The token names the workspace's owner, so that the rules for the owner's credentials apply.
func (r *rpc) IDToken(
	ctx context.Context, req *connect.Request[agentpb.IDTokenRequest],
) (*connect.Response[agentpb.IDTokenResponse], error) {
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
	if r.opts.Accounts != nil && r.opts.Accounts.Active(ctx, admitted.OwnerID) != nil {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("the workspace's owner is not active"))
	}
	if r.opts.Identity == nil {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("this server issues no ID tokens"))
	}
	token, err := r.opts.Identity.ForAgent(ctx, r.opts.DB.Queries, id, req.Msg.GetAudience())
	switch f := fault.As(err); {
	case f != nil && f.Code == fault.Invalid:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New(f.Error()))
	case f != nil && f.Code == fault.Forbidden:
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New(f.Error()))
	case err != nil:
		return nil, r.fail(ctx, id, "issue ID token", err)
	}
	return connect.NewResponse(&agentpb.IDTokenResponse{
		Token: token.Token.Reveal(), ExpiresAt: timestamppb.New(token.Expires),
	}), nil
}
