package extauth_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/extauth/extauthtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// TestLink checks that a user can link an account, see that, use it, and unlink it, and that no other user has access to any
// of it.
func TestLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann, bob := w.as("ann"), w.as("bob")
	if got, err := ann.ExternalAuth(t.Context(), "forge"); err != nil || got.Authenticated || got.DisplayName != "The Forge" {
		t.Errorf("before: got %+v, %v", got, err)
	}
	at, _, _ := w.browser("ann").open(callback + "?redirect=%2Ftemplates%2Fdev%2Fworkspace%3Fname%3Da")
	if at.RequestURI() != "/templates/dev/workspace?name=a" {
		t.Errorf("the sign-in led to %s", at)
	}
	token := w.token("ann")
	if !w.provider.Good(token) {
		t.Errorf("the token %q is not the provider's", token)
	}
	if got, err := ann.ExternalAuth(t.Context(), "forge"); err != nil || !got.Authenticated {
		t.Errorf("after: got %+v, %v", got, err)
	}
	all, err := ann.ExternalAuths(t.Context())
	if err != nil || len(all.Links) != 1 || !all.Links[0].Authenticated || !all.Links[0].HasRefreshToken || len(all.Providers) != 1 || all.Providers[0].ID != "forge" {
		t.Errorf("list: got %+v, %v", all, err)
	}
	if all, err := bob.ExternalAuths(t.Context()); err != nil || len(all.Links) != 0 || len(all.Providers) != 1 {
		t.Errorf("bob's list: got %+v, %v", all, err)
	}
	if got := w.token("bob"); got != "" {
		t.Errorf("bob has a token")
	}
	if _, err := bob.UnlinkExternalAuth(t.Context(), "forge"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("bob unlinks what is not his: %v", err)
	}
	if _, err := w.as("inside").UnlinkExternalAuth(t.Context(), "forge"); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a workspace's session unlinks: %v", err)
	}
	if _, err := ann.UnlinkExternalAuth(t.Context(), "forge"); err != nil {
		t.Errorf("unlink: %v", err)
	}
	if got := w.token("ann"); got != "" {
		t.Errorf("after unlinking there is a token")
	}
	if _, err := ann.ExternalAuth(t.Context(), "other"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("an unknown provider: %v", err)
	}
	if _, err := ann.UnlinkExternalAuth(t.Context(), "forge"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("unlink again: %v", err)
	}
}

// TestTokensAreEncrypted checks that nothing that a provider has issued appears unencrypted in the database or the log, and
// that it cannot be decrypted after being moved to another user's row.
func TestTokensAreEncrypted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.link("ann")
	w.link("bob")
	var dump string
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT string_agg(l::text || encode(tokens, 'escape'), '') FROM external_auth_links l`).Scan(&dump); err != nil {
		t.Fatal(err)
	}
	for _, token := range append(w.provider.Given(), "the-client-secret") {
		if strings.Contains(dump, token) || strings.Contains(dump, token[8:]) {
			t.Errorf("the database holds %s in plain", token)
		}
		if strings.Contains(w.Logged(), token) {
			t.Errorf("the log holds %s", token)
		}
	}
	w.Exec(`UPDATE external_auth_links SET tokens = (SELECT tokens FROM external_auth_links WHERE user_id = $1) WHERE user_id = $2`, w.User("ann"), w.User("bob"))
	if got := w.token("bob"); got != "" {
		t.Errorf("ann's tokens in bob's row give %q", got)
	}
	if got, err := w.as("bob").ExternalAuth(t.Context(), "forge"); err != nil || got.Authenticated || got.ValidateError == "" {
		t.Errorf("what bob sees: %+v, %v", got, err)
	}
}

// TestRefreshOnce checks that a token that is about to expire is renewed by a single request, regardless of how many callers
// ask, even across servers.
func TestRefreshOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.Expire(time.Minute) // within the margin
	w.link("ann")
	first := w.provider.Given()[0]
	w.provider.Expire(time.Hour)
	other := extauth.New(w.opts) // a second server
	t.Cleanup(other.Close)
	release := w.provider.Hold()
	t.Cleanup(release)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			service := w.Service
			if i%2 == 1 {
				service = other
			}
			c, err := service.ForProvider(t.Context(), w.User("ann"), "forge")
			if err != nil || c.Token == "" || c.Token.Reveal() == first || !w.provider.Good(c.Token.Reveal()) {
				t.Errorf("got %v, %v, want a new good token", c.Token, err)
			}
		})
	}
	release()
	wg.Wait()
	if n := w.provider.Refreshes(); n != 1 {
		t.Errorf("%d refreshes, want 1", n)
	}
}

// TestExtraProperties: the properties that the operator names are kept, also when an answer to a renewal has none, and no
// others are.
func TestExtraProperties(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		keys, want string
	}{{"authed_user,team", `{"authed_user":{"id":"U123","level":7}}`}, {"team", `{}`}, {"", `{}`}} {
		more := []string{}
		if tc.keys != "" {
			more = []string{"EXTRA_TOKEN_KEYS", tc.keys}
		}
		w := newWorld(t, more...)
		w.provider.Expire(time.Minute) // within the margin
		w.link("ann")
		w.provider.Expire(time.Hour)
		for range 2 {
			c, err := w.Service.ForProvider(t.Context(), w.User("ann"), "forge")
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(c.Extra)
			if err != nil || string(got) != tc.want && !(len(c.Extra) == 0 && tc.want == "{}") {
				t.Errorf("%q: %s, %v; want %s", tc.keys, got, err, tc.want)
			}
		}
		if w.provider.Refreshes() != 1 {
			t.Errorf("%q: %d refreshes", tc.keys, w.provider.Refreshes())
		}
	}
}

// TestRefreshSurvivesFailedCommit covers failures of the transaction that stores new tokens from the provider. After one
// failure, the same question stores them; after a longer one, a later question or the server's shutdown does. Meanwhile
// another server may present the spent refresh token in vain.
func TestRefreshSurvivesFailedCommit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failures int
		check    func(*world)
	}{
		"once": {1, func(w *world) {
			if !w.provider.Good(w.token("ann")) {
				t.Error("the token is of no use")
			}
		}},
		"for longer": {1000, func(w *world) {
			if c, err := w.ForProvider(w.t.Context(), w.User("ann"), "forge"); err == nil {
				t.Errorf("got %v although nothing could be stored", c.Token)
			}
			w.Exec("DROP TRIGGER broken ON external_auth_links")
			if !w.provider.Good(w.token("ann")) {
				t.Error("the token is of no use afterwards")
			}
		}},
		"until the server ends": {1000, func(w *world) {
			if c, err := w.ForProvider(w.t.Context(), w.User("ann"), "forge"); err == nil {
				t.Errorf("got %v although nothing could be stored", c.Token)
			}
			w.Exec("DROP TRIGGER broken ON external_auth_links")
			w.Close()
			w.Service = extauth.New(w.opts)
			w.t.Cleanup(w.Service.Close)
			if !w.provider.Good(w.token("ann")) {
				t.Error("the token is of no use for the next server")
			}
		}},
		"while another server fails the link": {1000, func(w *world) {
			if c, err := w.ForProvider(w.t.Context(), w.User("ann"), "forge"); err == nil {
				t.Errorf("got %v although nothing could be stored", c.Token)
			}
			w.Exec("DROP TRIGGER broken ON external_auth_links")
			w.Exec("UPDATE external_auth_links SET failure = 'the old refresh token is refused'")
			if !w.provider.Good(w.token("ann")) {
				t.Error("the token is of no use afterwards")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.provider.Expire(time.Minute) // within the margin
			w.link("ann")
			w.provider.Expire(time.Hour)
			w.Exec("CREATE SEQUENCE failures")
			w.Exec(fmt.Sprintf(`CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN IF nextval('failures') <= %d THEN RAISE EXCEPTION 'the commit fails'; END IF; RETURN NULL; END $$`, tt.failures))
			w.Exec(`CREATE CONSTRAINT TRIGGER broken AFTER UPDATE OF tokens ON external_auth_links DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION broken()`)
			tt.check(w)
			if n := w.provider.Refreshes(); n != 1 {
				t.Errorf("%d refreshes, want 1", n)
			}
		})
	}
}

// TestRevokedAtTheProvider checks that a token that the provider refuses is renewed, and that a link whose token cannot be
// renewed is unusable until the next sign-in.
func TestRevokedAtTheProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.link("ann")
	w.provider.RevokeAccess()
	if got := w.token("ann"); !w.provider.Good(got) {
		t.Errorf("after the token was revoked: %q is not good", got)
	}
	w.provider.Revoke()
	if got := w.token("ann"); got != "" {
		t.Errorf("after everything was revoked: got %q", got)
	}
	n := w.provider.Refreshes()
	got, err := w.as("ann").ExternalAuth(t.Context(), "forge")
	if err != nil || got.Authenticated || got.ValidateError == "" {
		t.Errorf("what ann sees: %+v, %v", got, err)
	}
	if w.provider.Refreshes() != n {
		t.Error("a refresh token that was refused is tried again")
	}
	w.link("ann")
	if got := w.token("ann"); !w.provider.Good(got) {
		t.Errorf("after another sign-in: %q", got)
	}
}

// TestUnlinkRevokes checks that unlinking revokes the tokens at the provider, in the ways of RFC 7009 and of GitHub, that it
// also succeeds while the provider is away, and that others revoke nothing.
func TestUnlinkRevokes(t *testing.T) {
	t.Parallel()
	for kind, more := range map[string]func(url string) []string{
		"RFC 7009": func(url string) []string { return []string{"REVOKE_URL", url + "/revoke"} },
		"GitHub":   func(string) []string { return []string{"TYPE", "github-enterprise"} },
		"none":     func(string) []string { return nil },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			provider := extauthtest.New(t)
			w := newWorldAt(t, provider, more(provider.URL)...)
			ann, bob := w.as("ann"), w.as("bob")
			w.link("ann")
			token := w.token("ann")
			if got, err := ann.ExternalAuth(t.Context(), "forge"); err != nil || got.SupportsRevocation != (kind != "none") {
				t.Errorf("got %+v, %v", got, err)
			}
			if _, err := bob.UnlinkExternalAuth(t.Context(), "forge"); fault.CodeOf(err) != fault.NotFound || !provider.Good(token) {
				t.Errorf("bob unlinks what is not his: %v; the token is good: %t", err, provider.Good(token))
			}
			got, err := ann.UnlinkExternalAuth(t.Context(), "forge")
			if err != nil || got.TokenRevoked != (kind != "none") || got.TokenRevocationError != "" {
				t.Errorf("unlink: got %+v, %v", got, err)
			}
			if provider.Good(token) != (kind == "none") || provider.Renews() != (kind == "none") {
				t.Errorf("the access token is good: %t; a refresh token is: %t", provider.Good(token), provider.Renews())
			}

			w.link("ann")
			provider.Away(true)
			got, err = ann.UnlinkExternalAuth(t.Context(), "forge")
			if err != nil || got.TokenRevoked || (got.TokenRevocationError == "") != (kind == "none") || strings.Contains(got.TokenRevocationError, "secret") {
				t.Errorf("unlink while the provider is away: got %+v, %v", got, err)
			}
			if _, err := ann.UnlinkExternalAuth(t.Context(), "forge"); fault.CodeOf(err) != fault.NotFound {
				t.Errorf("the link is still there: %v", err)
			}
		})
	}
}

// TestProviderAway checks that an outage of the provider does not unlink any user.
func TestProviderAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.Expire(time.Minute - time.Second)
	w.link("ann")
	w.provider.Away(true)
	if got := w.token("ann"); got != w.provider.Given()[0] {
		t.Errorf("while it is away: got %q, want the token that is still good", got)
	}
	w.Exec(`UPDATE external_auth_links SET expires_at = now() - interval '1 second'`)
	if _, err := w.ForProvider(t.Context(), w.User("ann"), "forge"); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("expired, while it is away: %v", err)
	}
	if strings.Contains(w.Logged(), "service's trace") {
		t.Error("the log holds what the provider has answered")
	}
	w.provider.Away(false)
	if got := w.token("ann"); !w.provider.Good(got) {
		t.Errorf("when it is back: %q", got)
	}
}

func TestNoRefresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "NO_REFRESH", "true")
	w.provider.Expire(time.Hour)
	w.link("ann")
	if got := w.token("ann"); !w.provider.Good(got) {
		t.Errorf("got %q", got)
	}
	w.Exec(`UPDATE external_auth_links SET expires_at = now() - interval '1 second'`)
	if got := w.token("ann"); got != "" || w.provider.Refreshes() != 0 {
		t.Errorf("expired: got %q after %d refreshes", got, w.provider.Refreshes())
	}
}

// TestBuilds checks which tokens builds receive.
func TestBuilds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	version := w.version("forge")
	require := func() error {
		return w.DB.InTx(t.Context(), func(q *dbsqlc.Queries) error { return w.Require(t.Context(), q, w.User("ann"), version) })
	}
	tokens := func(required bool) (got map[string]string, err error) {
		err = w.DB.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			got, err = w.BuildTokens(t.Context(), q, w.User("ann"), version, required)
			return err
		})
		return got, err
	}
	if err := require(); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), w.URL.String()+"/external-auth/forge") || !strings.Contains(err.Error(), "The Forge") {
		t.Errorf("without a link: %v", err)
	}
	if got, err := tokens(false); err != nil || len(got) != 0 {
		t.Errorf("a stop without a link: %v, %v", got, err)
	}
	w.provider.Expire(5 * time.Minute)
	w.link("ann")
	if err := require(); err != nil {
		t.Errorf("with a link: %v", err)
	}
	if err := w.Freshen(t.Context(), w.User("ann")); err != nil || w.provider.Refreshes() != 1 {
		t.Errorf("a token for 5 minutes: %v, %d refreshes, want 1", err, w.provider.Refreshes())
	}
	got, err := tokens(true)
	if err != nil || !w.provider.Good(got["forge"]) {
		t.Errorf("tokens: %v, %v", got, err)
	}
	w.Exec(`UPDATE external_auth_links SET expires_at = now() - interval '1 second'`)
	if got, err := tokens(true); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("expired while it waited: %v, %v", got, err)
	}
	if err := require(); err != nil {
		t.Errorf("expired, but renewable: %v", err)
	}
	w.Exec(`UPDATE external_auth_links SET failure = 'x'`)
	if err := require(); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a link of no use: %v", err)
	}
	w.Exec(`UPDATE template_version_external_auth SET provider_id = 'unknown'`)
	if err := require(); fault.CodeOf(err) != fault.NotFound || !strings.Contains(err.Error(), "administrator") {
		t.Errorf("a provider that nobody has configured: %v", err)
	}
}

// TestRotation checks that a key can be removed once everything is encrypted with the new one.
func TestRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.link("ann")
	withKeys := func(text string) *extauth.Service {
		opts := w.opts
		opts.Keys = keys(t, text)
		s := extauth.New(opts)
		t.Cleanup(s.Close)
		return s
	}
	if c, err := withKeys(key("n")).ForProvider(t.Context(), w.User("ann"), "forge"); err != nil || c.Token != "" {
		t.Errorf("without the key: got %v, %v", c.Token, err)
	}
	if _, err := keys(t, key("n")+","+key("k")).Rotate(t.Context(), w.DB, w.Log); err != nil {
		t.Fatal(err)
	}
	if c, err := withKeys(key("n")).ForProvider(t.Context(), w.User("ann"), "forge"); err != nil || !w.provider.Good(c.Token.Reveal()) {
		t.Errorf("with the new key alone: got %v, %v", c.Token, err)
	}
}

func TestUnknownProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, _, status := w.browser("ann").open("/external-auth/other/callback"); status != http.StatusNotFound {
		t.Errorf("got %d", status)
	}
	if _, err := w.ForURL(t.Context(), w.User("ann"), "https://example.com/x"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a URL that nobody is for: %v", err)
	}
	w.link("ann")
	c, err := w.ForURL(t.Context(), w.User("ann"), w.provider.URL+"/group/project.git")
	if err != nil || !w.provider.Good(c.Token.Reveal()) || c.Username != "oauth2" || c.PageURL != w.URL.String()+"/external-auth/forge" {
		t.Errorf("got %+v, %v", c, err)
	}
}
