package agents_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
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

// withForge gives the service a provider "forge", at which ann has a login.
func (w *world) withForge() {
	w.T.Helper()
	t := w.T.(*testing.T)
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
	if err := w.opts.ExternalAuth.Link(t.Context(), w.owner, "forge", &oauth2.Token{AccessToken: "annstoken"}); err != nil {
		t.Fatal(err)
	}
}

// TestExternalAuth checks that an agent gets the logins of its workspace's owner only, while it is admitted and the owner is
// active.
func TestExternalAuth(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	w.withForge()
	var suspended error
	w.opts.Accounts = fakeAccounts{&suspended}
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

// TestExternalAuthOfPrograms checks that a program with an agent's token gets what the agent gets, and that no other credential
// gets anything.
func TestExternalAuthOfPrograms(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	w.withForge()
	var suspended error
	w.opts.Accounts = fakeAccounts{&suspended}
	s := agents.New(w.opts)
	t.Cleanup(s.Stop)
	u := w.Serve(s)
	anns := program{t, u, "token-" + id.String()}
	ask := func(p program, query string) (int, sdk.AgentExternalAuth) {
		t.Helper()
		status, text := p.send("GET", "external-auth?"+query, nil)
		var out sdk.AgentExternalAuth
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return status, out
	}
	want := sdk.AgentExternalAuth{AccessToken: "annstoken", Password: "annstoken", Username: "oauth2", Type: "custom", TokenExtra: map[string]any{}}
	for _, query := range []string{"id=forge", "match=https%3A%2F%2Fgit.example.com%2Fa%2Fb.git", "id=forge&listen=false"} {
		if status, got := ask(anns, query); status != http.StatusOK || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d %+v", query, status, got)
		}
	}
	other := uuid.New()
	bobs := w.BuildRow(w.WorkspaceRow("bob", "bobs"), sdk.TransitionStart, sdk.JobSucceeded)
	w.store(bobs, true, resource(other))
	if status, got := ask(program{t, u, "token-" + other.String()}, "id=forge"); status != http.StatusOK || got.AccessToken != "" || got.URL != "http://server/external-auth/forge" {
		t.Errorf("bob's agent: %d %+v", status, got)
	}
	for query, want := range map[string]int{
		"": http.StatusBadRequest, "id=forge&match=https://git.example.com": http.StatusBadRequest, "id=" + strings.Repeat("a", 65): http.StatusBadRequest,
		"match=https://git.example.com/" + strings.Repeat("a", 3000): http.StatusBadRequest, "id=forge&listen=true": http.StatusBadRequest,
		"id=github": http.StatusNotFound, "match=https://git.example.com.evil.example/a": http.StatusNotFound, "match=http://git.example.com/a": http.StatusNotFound,
	} {
		if status, got := ask(anns, query); status != want || got.AccessToken != "" {
			t.Errorf("%s: %d %+v, want %d", query, status, got, want)
		}
	}
	for _, token := range []string{"", "guess", w.Token("ann"), w.Token("bob"), "token-" + uuid.NewString()} {
		if status, got := ask(program{t, u, token}, "id=forge"); status != http.StatusUnauthorized || got.AccessToken != "" {
			t.Errorf("%q: %d %+v", token, status, got)
		}
	}
	suspended = fault.New(fault.Forbidden, "suspended")
	if status, got := ask(anns, "id=forge"); status != http.StatusForbidden || got.AccessToken != "" {
		t.Errorf("a suspended owner's: %d %+v", status, got)
	}
	suspended = nil
	for reason, statement := range map[string]string{
		"consent": "DELETE FROM template_consents WHERE user_id = $1", "data": "UPDATE workspace_agents SET user_data = false WHERE workspace_id IN (SELECT id FROM workspaces WHERE owner_id = $1)",
	} {
		w.Exec(statement, w.owner)
		if status, got := ask(anns, "id=forge"); status != http.StatusForbidden || got.AccessToken != "" {
			t.Errorf("without %s: %d %+v", reason, status, got)
		}
	}
	w.revoke(b.Workspace)
	if status, got := ask(anns, "id=forge"); status != http.StatusUnauthorized || got.AccessToken != "" {
		t.Errorf("after the stop: %d %+v", status, got)
	}
}
