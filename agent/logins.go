package agent

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/login"
)

// findLogin asks the server for the owner's login at a provider. The agent caches no answer: the owner may unlink an account at any time.
func (d *daemon) findLogin(ctx context.Context, r login.Request) login.Answer {
	client, err := d.server()
	if err != nil {
		return login.Answer{Error: err.Error()}
	}
	ask := &agentpb.ExternalAuthRequest{Of: &agentpb.ExternalAuthRequest_Url{Url: r.URL}}
	if r.Provider != "" {
		ask.Of = &agentpb.ExternalAuthRequest_ProviderId{ProviderId: r.Provider}
	}
	got, err := client.ExternalAuth(ctx, connect.NewRequest(ask))
	switch {
	case err == nil:
		m := got.Msg
		return login.Answer{Provider: m.GetProviderId(), Name: m.GetDisplayName(), Page: m.GetAuthenticateUrl(), Username: m.GetUsername(), Token: m.GetAccessToken()}
	case connect.CodeOf(err) == connect.CodeNotFound:
		return login.Answer{Unknown: true}
	}
	if refused, ok := errors.AsType[*connect.Error](err); ok {
		return login.Answer{Error: refused.Message()}
	}
	return login.Answer{Error: err.Error()}
}
