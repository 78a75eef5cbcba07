package users

import (
	"net/http"
	"slices"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// listScopes lists the scopes that a token can have.
func (s *Service) listScopes(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.ScopeCatalog{External: rbac.Scopes()})
}

// scopeOf returns the scope that a request describes. Fields of the fault that it adds to f name what is wrong.
func scopeOf(f *fault.Error, req sdk.CreateTokenRequest) (rbac.Scope, []string) {
	scopes := req.Scopes
	switch req.Scope {
	case "", "all": // clients of before there were several scopes always send it
	case "application_connect":
		if len(scopes) == 0 {
			scopes = []string{req.Scope}
		} else if !slices.Contains(scopes, req.Scope) {
			check(f, "scope", "cannot be combined with other scopes")
		}
	default:
		check(f, "scope", "must be all or application_connect. Use scopes for others")
	}
	scope, err := rbac.NewScope(scopes, req.AllowList)
	if bad := fault.As(err); bad != nil {
		f.Fields = append(f.Fields, bad.Fields...)
	}
	if !scope.Limited() {
		return scope, nil
	}
	if len(scopes) == 0 {
		scopes = []string{"all"}
	}
	return scope, scopes
}

// withinOwn refuses a new key with more powers than the token that asks for it.
func withinOwn(r *http.Request, scope rbac.Scope) error {
	actor := httpapi.ActorFrom(r.Context())
	if scope.Within(actor.Scope) {
		return nil
	}
	return fault.New(fault.Forbidden, "A token cannot create a session, or a token that may do more than itself.").
		WithDetail("This token has the scopes %s. Sign in with: coder login <url>", actor.Scope)
}

// hashOf returns the hash that is stored of the secret half of a token. That of a limited token differs from what
// earlier releases compute: they do not know its limits, and must not accept it.
func hashOf(half secret.Token, limited bool) []byte {
	if limited {
		return ("limited " + half).Hash()
	}
	return half.Hash()
}

// isSecret reports, in constant time, whether half is the secret half of a key.
func isSecret(half secret.Token, key dbsqlc.GetCredentialRow) bool {
	if key.Scopes != nil {
		half = "limited " + half
	}
	return half.Matches(key.SecretHash)
}

// storedScope returns the scope of a stored key. A scope that this release does not know allows nothing.
func storedScope(scopes, allow []string) (rbac.Scope, error) {
	if scopes == nil {
		return rbac.Scope{}, nil
	}
	scope, err := rbac.NewScope(scopes, allow)
	if err != nil {
		return scope, unauthenticated("The token has scopes that this server does not know.")
	}
	return scope, nil
}
