package agent

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/agent/login"
)

// findLogin asks the server for the owner's login at a provider, or for an ID token. The agent caches no answer: the
// owner may unlink an account at any time, and a token says what is so at the moment.
func (u *uplink) findLogin(ctx context.Context, r login.Request) login.Answer {
	client, err := u.now()
	if err != nil {
		return login.Answer{Error: err.Error()}
	}
	if r.Audience != "" {
		return findToken(ctx, client, r.Audience)
	}
	ask := &agentpb.ExternalAuthRequest{Of: &agentpb.ExternalAuthRequest_Url{Url: r.URL}}
	if r.Provider != "" {
		ask.Of = &agentpb.ExternalAuthRequest_ProviderId{ProviderId: r.Provider}
	}
	got, err := client.ExternalAuth(ctx, connect.NewRequest(ask))
	switch {
	case err == nil:
		m := got.Msg
		return login.Answer{Provider: m.GetProviderId(), Name: m.GetDisplayName(), Page: m.GetAuthenticateUrl(),
			Username: m.GetUsername(), Token: m.GetAccessToken(), Extra: m.GetExtra()}
	case connect.CodeOf(err) == connect.CodeNotFound:
		return login.Answer{Unknown: true}
	}
	if refused, ok := errors.AsType[*connect.Error](err); ok {
		return login.Answer{Error: refused.Message()}
	}
	return login.Answer{Error: err.Error()}
}

// findToken asks the server for an ID token.
func findToken(ctx context.Context, client agentpbconnect.AgentServiceClient, audience string) login.Answer {
	got, err := client.IDToken(ctx, connect.NewRequest(&agentpb.IDTokenRequest{Audience: audience}))
	if err == nil {
		return login.Answer{Token: got.Msg.GetToken(), Expires: got.Msg.GetExpiresAt().AsTime()}
	}
	answer := login.Answer{Error: err.Error()}
	if refused, ok := errors.AsType[*connect.Error](err); ok {
		answer.Error = refused.Message()
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodePermissionDenied:
		answer.Refused = true
	case connect.CodeUnimplemented:
		answer.Error, answer.Refused = "this server issues no ID tokens: it is older than this workspace's agent", true
	}
	return answer
}
