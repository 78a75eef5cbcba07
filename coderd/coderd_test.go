package coderd_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/region"
	"github.com/codermesh/codermesh/v2/tailnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// public are the routes that need no session, each with the reason.
var public = map[string]string{
	"GET /healthz":                               "balancers have no account",
	"GET /api/v2/debug/server":                   "servers have no account: it answers only what another server of the deployment has sealed",
	"/":                                          "the dashboard's files say nothing of the deployment, and its sign-in page has no session yet",
	"GET /api/v2/init-script/{os}/{arch}":        "a machine fetches its agent before it has a session; the script is the same for all",
	"GET /bin/{name}":                            "a workspace fetches its agent before it has a session",
	"GET /.well-known/openid-configuration":      "clouds that verify ID tokens have no account; names the issuer and where its keys are",
	"GET /.well-known/jwks.json":                 "the same; the keys are public",
	"GET /install.sh":                            "users install the CLI before they have a session",
	"GET /install.ps1":                           "the same",
	"GET /derp":                                  "the relay asks every key for proof, and admits only those that are bound",
	"GET /derp/":                                 "the same",
	"GET " + protocol.Path:                       "agents and provisioners are no users: the handler checks each kind of credential",
	"GET " + protocol.LinkPath:                   "servers are no users: the handler asks for proof of the deployment's key",
	"GET /api/v2/{$}":                            "says that the API is here",
	"GET /api/v2/workspaceproxies/me/coordinate": "proxies are not users: the handler checks the proxy's token",
	"POST " + region.VisitPath:                   "the same",
	"POST " + region.RedeemPath:                  "the same",
	"POST " + region.SSHKeyPath:                  "the same",
	"POST " + region.SSHVisitPath:                "the same, and answers for keys that their users have allowed at the proxy",
	"POST " + region.SSHStartPath:                "the same",
	"POST " + region.SSHHostKeyPath:              "the same: each proxy gets its own key",
	"POST " + region.WireGuardKeyPath:            "the same",
	"POST " + region.DevicesPath:                 "the same: each proxy gets the devices that were added for it",
	"POST " + region.DeviceNamesPath:             "the same",
	"POST " + region.SightingsPath:               "the same",
	"POST " + region.DeviceVisitsPath:            "the same",
	"GET " + region.LatencyPath:                  "answers the same to everyone",
	"GET /api/v2/buildinfo":                      "clients choose their version before they sign in",
	"GET /api/v2/appearance":                     "the sign-in page shows it",
	"GET /api/v2/users/first":                    "whether the deployment is set up",
	"POST /api/v2/users/first":                   "works once, while there is no user",
	"GET /api/v2/users/authmethods":              "the sign-in page shows them",
	"GET /api/v2/users/oidc/callback":            "signs in; the identity provider and the browser's cookie prove who it is",
	"POST /api/v2/users/oidc/backchannel-logout": "the identity provider signs users out; its signature proves who says so",
	"GET /api/v2/users/oauth2/github/callback":   "signs in; GitHub and the browser's cookie prove who it is",
	"GET /api/v2/users/oauth2/github/device":     "begins a sign-in",
	"POST /api/v2/users/otp/request":             "for users who forgot their password",
	"POST /api/v2/users/otp/change-password":     "the passcode proves who it is",
	"POST /api/v2/users/login":                   "gives the session",
	"POST /api/v2/users/login/code":              "gives the session; the code and its program's secret prove who it is",
	"POST /api/v2/users/login/device":            "gives a program a code, which is worth nothing until a user enters it",
	"POST /api/v2/users/login/device/token":      "gives the session; the program's secret and the user's answer prove who it is",

	"POST /api/v2/users/validate-password": "judges a password before there is an account, and stores nothing",
	"GET /api/v2/openapi.json":             "describes the API, which is the same on every server of this version",
	"GET /swagger/doc.json":                "the same",
	"GET /swagger":                         "shows the same as a page",
	"GET /swagger/index.html":              "the same",
	"GET /swagger/page.css":                "its style",
	"GET /licenses":                        "shows the licenses of what the programs contain",

	"POST /api/v2/workspaceagents/aws-instance-identity":    "gives a machine its agent's token; the signature of the machine's cloud proves who it is",
	"POST /api/v2/workspaceagents/azure-instance-identity":  "the same",
	"POST /api/v2/workspaceagents/google-instance-identity": "the same",

	"POST /api/v2/workspaceagents/me/startup-problem":   "a start script has the agent's token and no session; the body carries it",
	"POST /api/v2/workspaceagents/me/log-source":        "a program has the agent's token and no session; the handler checks it",
	"PATCH /api/v2/workspaceagents/me/logs":             "the same",
	"GET /api/v2/workspaceagents/me/external-auth":      "the same",
	"GET /api/v2/workspaceagents/me/archives/{archive}": "the same",
	"GET /api/v2/workspaceagents/me/rpc":                "the same, at each call",
	"GET /api/v2/debug/ws":                              "the server tries its own websockets: the handler wants a token that a server of this deployment has signed",
	"GET /api/v2/applications/auth-redirect":            "leads visitors who are not signed in to the sign-in page; gives a code only to those who may open the app",
}

func TestEveryRouteNamesItsPermission(t *testing.T) {
	s := coderdtest.Start(t)
	var patterns []string
	for _, route := range s.Mux.Routes() { // the identity provider is no user: each checks its bearer token
		if strings.Contains(route.Pattern, "/scim/") {
			patterns = append(patterns, route.Pattern)
		}
	}
	for pattern := range public {
		patterns = append(patterns, pattern)
	}
	coderdtest.CheckPermissions(t, s.Mux, patterns...)
}

// The coordinator's route is public, so each of its credentials is attacked here.
func TestCoordinateRefuses(t *testing.T) {
	base := coderdtest.Start(t).URL
	key := tailnet.NewPrivateKey().Public()
	hello := "?v=1&key=" + url.QueryEscape(key.String())
	for name, tc := range map[string]struct {
		query  string
		header http.Header
		status int
	}{
		"nobody":                    {hello, nil, http.StatusUnauthorized},
		"no key":                    {"?v=1", nil, http.StatusBadRequest},
		"wrong session":             {hello, http.Header{sdk.SessionHeader: {"abcdefghij-0123456789012345678901"}}, http.StatusUnauthorized},
		"cookie":                    {hello, http.Header{"Cookie": {"coder_session_token=abcdefghij-0123456789012345678901"}}, http.StatusUnauthorized},
		"wrong agent token":         {hello, http.Header{sdk.AgentTokenHeader: {"guess"}}, http.StatusUnauthorized},
		"wrong pre-shared key":      {hello, http.Header{sdk.ProvisionerNameHeader: {"x"}, sdk.ProvisionerPSKHeader: {"guess"}}, http.StatusUnauthorized},
		"provisioner without a key": {hello, http.Header{sdk.ProvisionerNameHeader: {"x"}}, http.StatusUnauthorized},
		"provisioner's name":        {hello, http.Header{sdk.ProvisionerNameHeader: {strings.Repeat("x", 65)}, sdk.ProvisionerPSKHeader: {coderdtest.PSK.Reveal()}}, http.StatusBadRequest},
		"user scope with a key": {hello, http.Header{sdk.ProvisionerNameHeader: {"x"}, sdk.ProvisionerPSKHeader: {coderdtest.PSK.Reveal()},
			sdk.ProvisionerTagsHeader: {"scope=user"}}, http.StatusBadRequest},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base.String()+protocol.Path+tc.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range tc.header {
			req.Header[k] = v
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tc.status {
			t.Errorf("%s: got %s %s, want %d", name, resp.Status, body, tc.status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
