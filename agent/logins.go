package agent

import (
	"context"
	"errors"
	"net"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/agent/login"
)

// newLogins opens the socket on which programs of the workspace ask for what signs the owner in elsewhere. Nothing is kept here: each
// question goes to the server, which knows what the owner has unlinked meanwhile. ctx ends questions that are under way.
func (d *daemon) newLogins(ctx context.Context) (*privateSocket, error) {
	return newPrivateSocket(d.socketDir("logins"), func(conn net.Conn) {
		if err := login.Serve(ctx, conn, d.findLogin); err != nil {
			d.log.Debug("answer on the socket for logins", "err", err)
		}
	})
}

// findLogin asks the server.
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
