package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Bounds of an agent's questions, in bytes.
const (
	maxGitURL     = 2048
	maxProviderID = 64
)

// login returns the credential of the owner of an agent's workspace for the service at a URL or, without one, of a
// provider's id. Its faults are NotFound, Forbidden and Unavailable.
func (s *Service) login(
	ctx context.Context, a dbsqlc.GetAdmittedAgentRow, url, provider string,
) (extauth.Credential, error) {
	query, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := s.ownerActive(query, Agent{OwnerID: a.OwnerID}); err != nil {
		return extauth.Credential{}, err
	}
	switch {
	case s.opts.ExternalAuth == nil:
		return extauth.Credential{}, fault.New(fault.NotFound, "This server has no external login providers.")
	case url != "":
		return s.opts.ExternalAuth.ForURL(ctx, a.OwnerID, url)
	}
	return s.opts.ExternalAuth.ForProvider(ctx, a.OwnerID, provider)
}

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
	c, err := r.login(ctx, admitted, req.Msg.GetUrl(), req.Msg.GetProviderId())
	switch f := fault.As(err); {
	case f != nil && f.Code == fault.NotFound:
		return nil, connect.NewError(connect.CodeNotFound, errors.New(f.Error()))
	case f != nil && f.Code == fault.Forbidden:
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New(f.Error()))
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

// getExternalAuth gives a program with the agent's token, which may run beside the agent or before it, what
// rpc.ExternalAuth gives the agent.
func (s *Service) getExternalAuth(w http.ResponseWriter, r *http.Request) error {
	agent, err := s.program(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	id, match := q.Get("id"), q.Get("match")
	switch {
	case (id == "") == (match == ""):
		return fault.New(fault.Invalid, "The request must name either a login or a URL.").
			WithField("id", "set either id or match")
	case len(id) > maxProviderID || len(match) > maxGitURL:
		return fault.New(fault.Invalid, "The login's id or the URL is too long.").
			WithField("id", fmt.Sprintf("at most %d bytes", maxProviderID)).
			WithField("match", fmt.Sprintf("at most %d bytes", maxGitURL))
	}
	if listen, err := httpapi.QueryBool(r, "listen"); err != nil {
		return err
	} else if listen {
		return fault.New(fault.Invalid, "This server does not hold requests until an account is linked.").
			WithField("listen", "must be false: ask again after the user has linked the account")
	}
	query, cancel := context.WithTimeout(r.Context(), queryTimeout)
	defer cancel()
	admitted, err := s.opts.DB.GetAdmittedAgent(query, dbsqlc.GetAdmittedAgentParams{ID: &agent.ID, Stopping: true})
	if err != nil {
		return programFailed("read agent", err)
	}
	if reason := noCredentials(admitted); reason != "" {
		return fault.New(fault.Forbidden, "This agent gets no credentials of the workspace's owner.").
			WithDetail("%s", reason)
	}
	c, err := s.login(r.Context(), admitted, match, id)
	if err != nil {
		return err
	}
	httpapi.NoStore(w.Header())
	out := sdk.AgentExternalAuth{
		Type: c.Type, AccessToken: c.Token.Reveal(), Password: c.Token.Reveal(), TokenExtra: c.Extra,
	}
	if out.TokenExtra == nil {
		out.TokenExtra = map[string]any{}
	}
	if c.Token == "" {
		out.URL = c.PageURL
	} else {
		out.Username = c.Username
	}
	return httpapi.Write(w, http.StatusOK, out)
}
