package users

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/credential"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Kinds of API keys.
const (
	kindSession   = "session"   // from a sign-in; extended while it is used
	kindToken     = "token"     // created by its user, with a name and a fixed expiry
	kindWorkspace = "workspace" // given to a workspace's template; ends with the workspace's next build
)

const (
	workspaceLifetime = 30 * 24 * time.Hour

	// touchEvery is how often the use of a key is written, so that a list of users or sessions is right within a
	// minute. It is more often for keys that live for less than ten times as long. A session is extended less often
	// (TouchAPIKeys).
	touchEvery = time.Minute

	keyIDLength, keySecretLength = 10, 22
)

// tokenForm matches a token: the key's id and its secret.
var tokenForm = lazyregexp.New(`^[A-Za-z0-9]{10}-[A-Za-z0-9]{22}$`)

// Authenticate returns the sender of a request, using one query. Its faults are Unauthenticated and Unavailable.
func (s *Service) Authenticate(r *http.Request) (rbac.Actor, error) {
	token, _ := credential.Of(r)
	if token == "" || s.secure() && httpapi.Planted(r) {
		return rbac.Actor{}, unauthenticated("You are not signed in.")
	}
	return s.AuthenticateToken(r.Context(), token)
}

// AuthenticateToken is like Authenticate, for a bare token.
func (s *Service) AuthenticateToken(ctx context.Context, token secret.Token) (rbac.Actor, error) {
	text := token.Reveal()
	if !tokenForm().MatchString(text) {
		return rbac.Actor{}, unauthenticated("The session token is invalid.")
	}
	id, half, _ := strings.Cut(text, "-")
	key, err := s.db.GetCredential(ctx, id)
	if database.IsNotFound(err) {
		return rbac.Actor{}, unauthenticated("The session has ended, or its token is invalid.")
	}
	if err != nil {
		return rbac.Actor{}, fmt.Errorf("look up session: %w", err)
	}
	now := time.Now()
	switch {
	case !isSecret(secret.Token(half), key):
		return rbac.Actor{}, unauthenticated("The session has ended, or its token is invalid.")
	case now.After(key.ExpiresAt) && key.EndReason != "":
		return rbac.Actor{}, unauthenticated("The session has ended: " + key.EndReason)
	case now.After(key.ExpiresAt):
		return rbac.Actor{}, unauthenticated("The session has expired.")
	case key.Actor.Status == string(sdk.UserSuspended):
		return rbac.Actor{}, suspended()
	}
	unknown := key.UserAgent == "" && agentOf(ctx) != ""
	if unknown || now.Sub(key.LastUsedAt) > min(touchEvery, time.Duration(key.LifetimeSeconds)*time.Second/10) {
		// This does not fail the request: the next one tries again.
		if err := s.Used(ctx, key.ID); err != nil {
			s.log.Warn("cannot record use of session", "user", key.Actor.ID, "err", err)
		}
	}
	return holderOf(key.Actor, key.ID, key.Kind, key.Scopes, key.AllowList)
}

// holderOf returns a user who acts with a key. It returns the fault Unauthenticated if the key has a scope that this
// release does not know.
func holderOf(a dbsqlc.Actor, keyID, kind string, scopes, allow []string) (rbac.Actor, error) {
	scope, err := storedScope(scopes, allow)
	if err != nil {
		return rbac.Actor{}, err
	}
	actor := actorOf(a)
	actor.KeyID, actor.FromWorkspace, actor.Scope = keyID, kind == kindWorkspace, scope
	return actor, nil
}

// actorOf returns a user who acts without a key.
func actorOf(a dbsqlc.Actor) rbac.Actor {
	return rbac.Actor{UserID: a.ID, Username: a.Username, Roles: a.Roles, Memberships: a.Memberships, Groups: a.Groups}
}

// Holder returns the current holder of a key, for checking what was signed for the key earlier. It returns the fault
// Unauthenticated if the key has ended.
func (s *Service) Holder(ctx context.Context, keyID string) (rbac.Actor, error) {
	key, err := s.db.GetKeyHolder(ctx, keyID)
	switch {
	case database.IsNotFound(err):
		return rbac.Actor{}, unauthenticated("The session has ended.")
	case err != nil:
		return rbac.Actor{}, fmt.Errorf("look up session: %w", err)
	case key.Actor.Status == string(sdk.UserSuspended):
		return rbac.Actor{}, suspended()
	}
	return holderOf(key.Actor, key.ID, key.Kind, key.Scopes, key.AllowList)
}

// Used records that sessions and tokens, by their ids, are in use, where if ctx is a request's: it updates when their
// users were last seen, and extends sessions. It writes at most once a minute for each of them, or once in a tenth of a
// shorter lifetime, and does not revive one that has ended.
func (s *Service) Used(ctx context.Context, ids ...string) error {
	return s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		users, err := q.TouchAPIKeys(ctx, dbsqlc.TouchAPIKeysParams{
			Ids: ids, Every: touchEvery.Seconds(), UserAgent: agentOf(ctx), Address: addressOf(ctx),
		})
		if err != nil || len(users) == 0 {
			return err
		}
		return q.TouchUsers(ctx, users)
	})
}

// agentOf returns the program that sent a request, as it calls itself, in a form that can be stored.
func agentOf(ctx context.Context) string {
	agent := httpapi.UserAgent(ctx)
	return database.Visible(agent[:min(len(agent), maxAgent)])
}

// addressOf returns the address that a request comes from.
func addressOf(ctx context.Context) string {
	if addr := httpapi.ClientAddr(ctx); addr.IsValid() {
		return addr.String()
	}
	return ""
}

// Active returns the fault Unauthenticated if the user has been suspended or deleted.
func (s *Service) Active(ctx context.Context, userID uuid.UUID) error {
	_, err := s.Actor(ctx, userID)
	return err
}

// Actor returns the user with their current rights, for what is done later in their name. It returns the fault
// Unauthenticated if they may no longer act.
func (s *Service) Actor(ctx context.Context, userID uuid.UUID) (rbac.Actor, error) {
	user, err := s.db.GetActor(ctx, userID)
	switch {
	case database.IsNotFound(err):
		return rbac.Actor{}, unauthenticated("The account no longer exists.")
	case err != nil:
		return rbac.Actor{}, fmt.Errorf("look up user: %w", err)
	case user.Status == string(sdk.UserSuspended):
		return rbac.Actor{}, suspended()
	}
	return actorOf(user), nil
}

// Session returns a user with the current rights of a session or token, by its id. Its faults are those of
// Authenticate.
func (s *Service) Session(ctx context.Context, id string, userID uuid.UUID) (rbac.Actor, error) {
	key, err := s.db.GetCredential(ctx, id)
	switch {
	case database.IsNotFound(err) || err == nil && (key.Actor.ID != userID || time.Now().After(key.ExpiresAt)):
		return rbac.Actor{}, unauthenticated("The session has ended.")
	case err != nil:
		return rbac.Actor{}, fmt.Errorf("look up session: %w", err)
	case key.Actor.Status == string(sdk.UserSuspended):
		return rbac.Actor{}, suspended()
	}
	return holderOf(key.Actor, key.ID, key.Kind, key.Scopes, key.AllowList)
}

func unauthenticated(message string) error {
	return fault.New(fault.Unauthenticated, "%s", message).WithDetail("Sign in with: coder login <url>")
}

func suspended() error {
	return fault.New(fault.Unauthenticated, "Your account is suspended.").
		WithDetail("Ask an owner of this deployment to activate it.")
}

func (s *Service) login(w http.ResponseWriter, r *http.Request) error {
	var req sdk.LoginRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx := r.Context()
	user, err := s.db.GetUserByEmail(ctx, strings.TrimSpace(req.Email))
	if err != nil && !database.IsNotFound(err) {
		return fmt.Errorf("look up user: %w", err)
	}
	// A user that does not exist costs the same work, so that the time reveals nothing.
	good, verifyErr := s.checkPair(w, r, req.Email, req.Password, user.PasswordHash)
	if verifyErr != nil {
		return verifyErr
	}
	if !good || err != nil || user.LoginType != string(sdk.LoginPassword) {
		return s.signInFailed(ctx, user, req.Email,
			fault.New(fault.Unauthenticated, "The email address or the password is wrong."))
	}
	if s.onlyOwnersUsePasswords && !slices.Contains(user.Roles, rbac.RoleOwner) {
		return s.signInFailed(ctx, user, req.Email, fault.New(fault.Forbidden, "Sign-in with a password is switched off.").
			WithDetail("Use another way to sign in on the sign-in page, or ask an owner."))
	}
	var token secret.Token
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		token, err = s.StartSession(ctx, q, user)
		return err
	})
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	s.log.Info("user signed in", "user", user.Username, "addr", httpapi.ClientAddr(ctx))
	s.KeepSession(w, token)
	return httpapi.Write(w, http.StatusCreated, sdk.LoginResponse{SessionToken: token.Reveal()})
}

// signedIn records a sign-in.
func signedIn(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User, key dbsqlc.ApiKey) error {
	return audit.Record(ctx, q, audit.Entry{
		Action: audit.Login, Kind: audit.APIKey, ID: user.ID, Name: user.Username, Status: http.StatusCreated,
		User:   &audit.Account{ID: user.ID, Name: user.Username},
		Fields: map[string]any{"key_id": key.ID, "login_type": user.LoginType},
	})
}

// signInFailed records a sign-in that failed, with the account that was named, and returns the reason. user is zero if
// there is no such account.
func (s *Service) signInFailed(ctx context.Context, user dbsqlc.User, named string, reason error) error {
	e := audit.Entry{
		Action: audit.Login, Kind: audit.APIKey, ID: user.ID, Name: named, Status: fault.CodeOf(reason).HTTPStatus(),
		User: &audit.Account{ID: user.ID, Name: named},
	}
	if user.ID != uuid.Nil {
		e.Name, e.User.Name = user.Username, user.Username
	}
	if err := audit.Record(ctx, s.db.Queries, e); err != nil {
		return err
	}
	return reason
}

// logout ends the session that the request carries.
func (s *Service) logout(w http.ResponseWriter, r *http.Request) error {
	actor := httpapi.ActorFrom(r.Context())
	// The request ends with its session, and the session with the key: the answer must not depend on which end is
	// noticed first.
	ctx := context.WithoutCancel(r.Context())
	err := s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		if _, err := q.DeleteAPIKey(ctx, dbsqlc.DeleteAPIKeyParams{ID: actor.KeyID, UserID: actor.UserID}); err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.Entry{ID: actor.UserID, Name: actor.Username, Fields: map[string]any{
			"key_id": actor.KeyID,
		}})
	})
	if err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	s.notifyRevoked(actor.UserID)
	s.setCookie(w, "", -1)
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "You are signed out."})
}

// secure reports whether browsers reach the server over HTTPS.
func (s *Service) secure() bool { return s.accessURL != nil && s.accessURL.Scheme == "https" }

// setCookie stores the session in the browser or, with a negative age, removes it: also under the name without the
// prefix, which an earlier version or another host may have left behind.
func (s *Service) setCookie(w http.ResponseWriter, value string, maxAge int) {
	cookie := http.Cookie{
		Name: credential.CookieName(s.secure()), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: s.secure(),
	}
	http.SetCookie(w, &cookie)
	if maxAge < 0 && s.secure() {
		cookie.Name = credential.CookieName(false)
		http.SetCookie(w, &cookie)
	}
}

// newKey stores a new key and returns its token, which cannot be read again.
func newKey(
	ctx context.Context, q *dbsqlc.Queries, p dbsqlc.InsertAPIKeyParams, lifetime time.Duration,
) (secret.Token, dbsqlc.ApiKey, error) {
	half := secret.Token(secret.Text(keySecretLength))
	p.ID, p.SecretHash, p.LifetimeSeconds = secret.Text(keyIDLength), hashOf(half,
		p.Scopes != nil), int64(lifetime/time.Second)
	key, err := q.InsertAPIKey(ctx, p)
	if err != nil {
		return "", dbsqlc.ApiKey{}, fmt.Errorf("store key: %w", err)
	}
	return secret.Token(p.ID + "-" + half.Reveal()), key, nil
}

// SessionFor creates the token that a workspace's template may read, and ends the token of an earlier build. It acts
// for the user with the powers of a member or template admin, and cannot create other credentials.
func (s *Service) SessionFor(
	ctx context.Context, q *dbsqlc.Queries, userID, workspaceID uuid.UUID,
) (secret.Token, error) {
	if err := q.DeleteWorkspaceKeys(ctx, &workspaceID); err != nil {
		return "", fmt.Errorf("end the workspace's earlier session: %w", err)
	}
	token, _, err := newKey(ctx, q, dbsqlc.InsertAPIKeyParams{
		UserID: userID, Kind: kindWorkspace, WorkspaceID: &workspaceID,
	}, workspaceLifetime)
	return token, err
}
