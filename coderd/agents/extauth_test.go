package agents_test

import (
	"net/url"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestExternalAuth checks that an agent gets the logins of its workspace's owner only, while it is admitted and the owner is
// active.
func TestExternalAuth(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	signer, err := signed.Load(t.Context(), w.DB)
	if err != nil {
		t.Fatal(err)
	}
	keys := coderdtest.Keyring(t)
	providers, err := extauth.ParseEnv([]string{
		"CODER_EXTERNAL_AUTH_0_ID=forge", "CODER_EXTERNAL_AUTH_0_TYPE=custom", "CODER_EXTERNAL_AUTH_0_CLIENT_ID=id", "CODER_EXTERNAL_AUTH_0_CLIENT_SECRET=secret",
		"CODER_EXTERNAL_AUTH_0_AUTH_URL=https://git.example.com/a", "CODER_EXTERNAL_AUTH_0_TOKEN_URL=https://git.example.com/t",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.opts.ExternalAuth = extauth.New(extauth.Options{
		DB: w.DB, Logger: w.log, Keys: keys, Signer: signer, Providers: providers, AccessURL: &url.URL{Scheme: "http", Host: "server"},
	})
	t.Cleanup(w.opts.ExternalAuth.Close)
	var suspended error
	w.opts.Accounts = fakeAccounts{&suspended}
	if err := w.opts.ExternalAuth.Link(t.Context(), w.owner, "forge", &oauth2.Token{AccessToken: "annstoken"}); err != nil {
		t.Fatal(err)
	}
	s := serve(t, agents.New(w.opts))
	byURL := func(text string) *connect.Request[agentpb.ExternalAuthRequest] {
		return connect.NewRequest(&agentpb.ExternalAuthRequest{Of: &agentpb.ExternalAuthRequest_Url{Url: text}})
	}
	byID := func(text string) *connect.Request[agentpb.ExternalAuthRequest] {
		return connect.NewRequest(&agentpb.ExternalAuthRequest{Of: &agentpb.ExternalAuthRequest_ProviderId{ProviderId: text}})
	}
	anns := s.client(id)
	for name, req := range map[string]*connect.Request[agentpb.ExternalAuthRequest]{"by URL": byURL("https://git.example.com/a/b.git"), "by id": byID("forge")} {
		got, err := anns.ExternalAuth(t.Context(), req)
		if err != nil || got.Msg.GetAccessToken() != "annstoken" || got.Msg.GetUsername() != "oauth2" || got.Msg.GetAuthenticateUrl() != "http://server/external-auth/forge" {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	other := uuid.New()
	w.store(w.BuildRow(w.WorkspaceRow("bob", "bobs"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(other))
	if got, err := s.client(other).ExternalAuth(t.Context(), byURL("https://git.example.com/a/b.git")); err != nil || got.Msg.GetAccessToken() != "" {
		t.Errorf("bob's agent: got %v, %v, want no token", got, err)
	}
	for name, tc := range map[string]struct {
		req  *connect.Request[agentpb.ExternalAuthRequest]
		want connect.Code
	}{
		"another host":    {byURL("https://git.example.com.evil.example/a"), connect.CodeNotFound},
		"another id":      {byID("github"), connect.CodeNotFound},
		"nothing":         {connect.NewRequest(&agentpb.ExternalAuthRequest{}), connect.CodeInvalidArgument},
		"a long URL":      {byURL("https://git.example.com/" + strings.Repeat("a", 3000)), connect.CodeInvalidArgument},
		"a long id":       {byID(strings.Repeat("a", 65)), connect.CodeInvalidArgument},
		"no URL at all":   {byURL("\x00"), connect.CodeNotFound},
		"without TLS":     {byURL("http://git.example.com/a"), connect.CodeNotFound},
		"a name for both": {byURL("https://git.example.com@evil.example/"), connect.CodeNotFound},
	} {
		if _, err := anns.ExternalAuth(t.Context(), tc.req); connect.CodeOf(err) != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
	suspended = fault.New(fault.Forbidden, "suspended")
	if _, err := anns.ExternalAuth(t.Context(), byID("forge")); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a suspended owner's agent: %v, want permission denied", err)
	}
	suspended = nil
	w.revoke(b.Workspace)
	if _, err := anns.ExternalAuth(t.Context(), byID("forge")); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a revoked agent: %v, want permission denied", err)
	}
}
