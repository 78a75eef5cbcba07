package extauth_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/extauth/extauthtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestInstallations checks that users see where a GitHub App is installed, for their own token, and that a provider that
// answers badly does no harm.
func TestInstallations(t *testing.T) {
	t.Parallel()
	provider := extauthtest.New(t)
	w := newWorldAt(t, provider, "APP_INSTALL_URL", "https://github.com/apps/mesh/installations/new", "APP_INSTALLATIONS_URL", provider.URL+"/api/v3/user/installations")
	get := func(name string) sdk.ExternalAuth {
		t.Helper()
		got, err := w.as(name).ExternalAuth(t.Context(), "forge")
		if err != nil {
			t.Fatal(err)
		}
		if got.AppInstallURL != "https://github.com/apps/mesh/installations/new" {
			t.Errorf("install at %q", got.AppInstallURL)
		}
		return got
	}
	none := func(what, name string) {
		t.Helper()
		if got := get(name); got.AppInstallable || len(got.Installations) != 0 || got.Authenticated != (name == "ann") {
			t.Errorf("%s: %+v", what, got)
		}
	}
	none("not linked", "bob")
	w.link("ann")
	none("an OAuth application's token", "ann")
	provider.Install(`{"total_count":0,"installations":[]}`)
	if got := get("ann"); !got.AppInstallable || len(got.Installations) != 0 {
		t.Errorf("not installed: %+v", got)
	}
	provider.Install(`{"total_count":2,"installations":[
		{"id":7,"html_url":"https://github.com/settings/installations/7","account":{"id":1,"login":"ann","avatar_url":"https://a.example/1","html_url":"https://github.com/ann"}},
		{"id":8,"html_url":"javascript:alert(1)","account":{"id":2,"login":"corp\u0000","name":"Corp","avatar_url":"data:x","html_url":"//evil"}}]}`)
	want := []sdk.ExternalAuthAppInstallation{
		{ID: 7, ConfigureURL: "https://github.com/settings/installations/7", Account: sdk.ExternalAuthUser{ID: 1, Login: "ann", AvatarURL: "https://a.example/1", ProfileURL: "https://github.com/ann"}},
		{ID: 8, Account: sdk.ExternalAuthUser{ID: 2, Login: "corp\ufffd", Name: "Corp"}},
	}
	if got := get("ann"); !got.AppInstallable || cmp.Diff(want, []sdk.ExternalAuthAppInstallation(got.Installations)) != "" {
		t.Errorf("installations: %s", cmp.Diff(want, []sdk.ExternalAuthAppInstallation(got.Installations)))
	}
	none("another user", "bob")
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `,{"id":%d,"account":{"login":"a"}}`, i+1)
	}
	provider.Install(`{"installations":[` + many.String()[1:] + `]}`)
	if got := get("ann"); len(got.Installations) != 100 {
		t.Errorf("%d installations", len(got.Installations))
	}
	for _, answer := range []string{"nonsense", "[]", "null", "{}", `{"installations":null}`, `{"installations":[]} and more`, `{"installations":{}}`, `{"installations":[{"id":"x"}]}`, `{"installations":[` + strings.Repeat(`{"id":1},`, 1<<20)} {
		provider.Install(answer)
		none(fmt.Sprintf("%.20s", answer), "ann")
	}
}

// TestInstallationsURLs checks where installations are asked for.
func TestInstallationsURLs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pairs []string
		want  string
	}{
		{[]string{"TYPE", "github"}, "https://api.github.com/user/installations"},
		{[]string{"TYPE", "github", "AUTH_URL", "https://git.corp"}, "https://git.corp/api/v3/user/installations"},
		{[]string{"TYPE", "github-enterprise", "AUTH_URL", "https://git.corp"}, "https://git.corp/api/v3/user/installations"},
		{[]string{"TYPE", "gitlab"}, ""},
		{[]string{"TYPE", "gitlab", "APP_INSTALLATIONS_URL", "https://f/i"}, "https://f/i"},
	} {
		got, err := extauth.ParseEnv(env(append(tc.pairs, "CLIENT_ID", "id", "CLIENT_SECRET", "secret")...))
		if err != nil || got[0].InstallationsURL != tc.want {
			t.Errorf("%q: got %+v, %v, want %s", tc.pairs, got, err, tc.want)
		}
	}
	for _, setting := range []string{"APP_INSTALL_URL", "APP_INSTALLATIONS_URL"} {
		_, err := extauth.ParseEnv(env("TYPE", "github", "CLIENT_ID", "id", "CLIENT_SECRET", "secret", setting, "javascript:alert(1)"))
		if err == nil || !strings.Contains(err.Error(), "0_"+setting) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}
