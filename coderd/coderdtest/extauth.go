package coderdtest

import (
	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
)

// GitHub is an edit for New: the server has a login with GitHub, called "github". Tests cannot complete that login;
// they link accounts with ExternalAuth.Link.
func GitHub(opts *coderd.Options) {
	const prefix, away = "CODER_EXTERNAL_AUTH_0_", "http://127.0.0.1:1"
	providers, err := extauth.ParseEnv([]string{
		prefix + "TYPE=github", prefix + "CLIENT_ID=id", prefix + "CLIENT_SECRET=secret",
		prefix + "VALIDATE_URL=" + away, prefix + "TOKEN_URL=" + away, prefix + "AUTH_URL=" + away,
	})
	if err != nil {
		panic(err) // the variables above are wrong
	}
	opts.ExternalAuth = providers
}
