package users

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// A browser hands its sign-in over to a program on the same computer, as RFC 8252 (section 7.3) describes it for
// programs without a server of their own. `coder login` listens on a loopback port, and opens a page with the port and
// with the hash of a secret that it keeps (PKCE, RFC 7636, S256). On a click, the page asks for a code here, and sends
// the browser to the port with it. The program exchanges code and secret for a session. The code is worth nothing
// without the secret, so it may stand in an address; and nothing is stored, so that any server of the deployment
// answers.
const (
	handoffPurpose  = "sign-in of a program"
	handoffLifetime = time.Minute
)

// handoff is what a code holds.
type handoff struct {
	Key       string `json:"key"` // the session that asked, by its id: the code ends with it
	Challenge string `json:"challenge"`
}

// createLoginCode creates a code for a program of the user's own.
func (s *Service) createLoginCode(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Create, rbac.APIKey)
	if err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	if user.ID != actor.UserID {
		return fault.New(fault.Forbidden, "Only %s can hand a sign-in of theirs to a program.", user.Username)
	}
	if err := withinOwn(r, rbac.Scope{}); err != nil {
		return err
	}
	var req sdk.CreateLoginCodeRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if sum, err := base64.RawURLEncoding.DecodeString(req.CodeChallenge); err != nil || len(sum) != sha256.Size {
		return fault.New(fault.Invalid,
			"code_challenge is not the base64url of a SHA-256 hash (RFC 7636, method S256).")
	}
	code, err := s.signer.Sign(handoffPurpose, handoff{Key: actor.KeyID, Challenge: req.CodeChallenge}, handoffLifetime)
	if err != nil {
		return fmt.Errorf("sign code: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.CreateLoginCodeResponse{Code: code.Reveal()})
}

// loginWithCode gives a session for a code and the secret of the program that the code is for.
func (s *Service) loginWithCode(w http.ResponseWriter, r *http.Request) error {
	var req sdk.LoginWithCodeRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx := r.Context()
	key, ok := keyOfCode(s.signer, secret.Token(req.Code), req.CodeVerifier)
	if !ok {
		return unauthenticated("The code is not valid, or a minute has passed.")
	}
	actor, err := s.Holder(ctx, key)
	if err != nil {
		return err
	}
	if !(rbac.Scope{}).Within(actor.Scope) {
		return unauthenticated("The code is of a token that may not create sessions.")
	}
	user, err := s.db.GetUser(ctx, actor.UserID)
	if err != nil {
		return fmt.Errorf("look up user: %w", err)
	}
	var token secret.Token
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		token, err = s.StartSession(ctx, q, user)
		return err
	})
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	s.log.Info("user signed in a program", "user", user.Username, "addr", httpapi.ClientAddr(ctx))
	return httpapi.Write(w, http.StatusCreated, sdk.LoginResponse{SessionToken: token.Reveal()})
}

// keyOfCode returns the session that a code is from, if the code is valid and the verifier is what its challenge was
// made of.
func keyOfCode(signer *signed.Signer, code secret.Token, verifier string) (key string, ok bool) {
	var h handoff
	if err := signer.Verify(handoffPurpose, code, &h); err != nil {
		return "", false
	}
	sum := sha256.Sum256([]byte(verifier))
	challenge := base64.RawURLEncoding.EncodeToString(sum[:])
	return h.Key, subtle.ConstantTimeCompare([]byte(challenge), []byte(h.Challenge)) == 1
}

// handoffRoutes registers the routes.
func (s *Service) handoffRoutes(mux *httpapi.Mux) {
	mux.Handle("POST /api/v2/users/{user}/keys/codes", rbac.Needs(rbac.Create, rbac.APIKey), s.createLoginCode,
		audit.Exempt("a code alone gives nothing; the session that it becomes is recorded"))
	mux.Handle("POST /api/v2/users/login/code", rbac.Public, s.loginWithCode, audit.On(audit.Login, audit.APIKey))
}
