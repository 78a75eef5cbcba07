package users

import (
	"cmp"
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
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// maxTokens is the most tokens that one page of a list contains.
const maxTokens = 1000

var tokenNameForm = lazyregexp.New(`^[a-zA-Z0-9]+([ ._-][a-zA-Z0-9]+)*$`)

func (s *Service) listTokens(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.APIKey)
	if err != nil {
		return err
	}
	all, err := httpapi.QueryBool(r, "include_all")
	if err != nil {
		return err
	}
	only := &user.ID
	if all && httpapi.ActorFrom(r.Context()).Sees(rbac.APIKey, uuid.Nil) {
		only = nil
	}
	expired, err := httpapi.QueryBool(r, "include_expired")
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(r, "limit", maxTokens, maxTokens)
	if err != nil {
		return err
	}
	offset, err := httpapi.QueryInt(r, "offset", 0, 1<<30)
	if err != nil {
		return err
	}
	rows, err := s.db.ListTokens(r.Context(), dbsqlc.ListTokensParams{
		UserID: only, IncludeExpired: expired, PageLimit: int32(cmp.Or(limit, maxTokens)), PageOffset: int32(offset),
	})
	if err != nil {
		return fmt.Errorf("list tokens: %w", err)
	}
	out := sdk.List[sdk.APIKey]{}
	for _, row := range rows {
		key := toKey(row.ApiKey, "") // tokens only
		key.Username = row.Username
		out = append(out, key)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) createToken(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Create, rbac.APIKey)
	if err != nil {
		return err
	}
	var req sdk.CreateTokenRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := maySignIn(user); err != nil {
		return err
	}
	if err := mayActAs(httpapi.ActorFrom(r.Context()), user); err != nil {
		return err
	}
	if req.Lifetime == 0 {
		req.Lifetime = s.lifetimes.of(user)
	}
	if req.TokenName = strings.TrimSpace(req.TokenName); req.TokenName == "" {
		req.TokenName = "token-" + strings.ToLower(uuid.NewString()[:8])
	}
	f := fault.New(fault.Invalid, "The token cannot be created.")
	if longest := s.lifetimes.longest(user); req.Lifetime < time.Minute || req.Lifetime > longest {
		check(f, "lifetime", fmt.Sprintf("must be between 1m and %s, the maximum of this server", days(longest)))
	}
	if len(req.TokenName) > 64 || !tokenNameForm().MatchString(req.TokenName) {
		check(f, "token_name",
			"must be at most 64 letters and digits, with single hyphens, dots or spaces between them")
	}
	scope, scopes := scopeOf(f, req)
	if len(f.Fields) > 0 {
		return f
	}
	if err := withinOwn(r, scope); err != nil {
		return err
	}
	p := dbsqlc.InsertAPIKeyParams{UserID: user.ID, Kind: kindToken, Name: req.TokenName}
	if scope.Limited() {
		p.Scopes, p.AllowList = scopes, append([]string{}, req.AllowList...)
	}
	token, err := s.storeKey(r.Context(), user, p, req.Lifetime)
	if database.IsUniqueViolation(err, "api_keys_token_name") {
		return fault.New(fault.Conflict, "You already have a token named %q.", req.TokenName).
			WithField("token_name", "is taken")
	}
	if err != nil {
		return err
	}
	s.log.Info("token created", "user", user.Username, "scopes", scope.String())
	return httpapi.Write(w, http.StatusCreated, sdk.CreateTokenResponse{Key: token.Reveal()})
}

// maySignIn refuses a token for a user who could not use it.
func maySignIn(user dbsqlc.User) error {
	if user.Status == string(sdk.UserSuspended) {
		return fault.New(fault.Invalid, "%s is suspended.", user.Username).WithDetail("Activate the account first.")
	}
	return nil
}

// mayActAs refuses a token or session of another user who signs in: it would open the user's workspaces and consent to
// templates for them, which no role can. Accounts that do not sign in have the tokens that owners make.
func mayActAs(actor rbac.Actor, user dbsqlc.User) error {
	if actor.UserID == user.ID || user.LoginType == string(sdk.LoginNone) {
		return nil
	}
	return fault.New(fault.Forbidden, "Only %s can create tokens and sessions for this account: they would open its workspaces.", user.Username).
		WithDetail("Programs get a service account, whose tokens owners create: coder users create --username NAME --service-account")
}

// createSession creates another session for the user.
func (s *Service) createSession(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Create, rbac.APIKey)
	if err != nil {
		return err
	}
	if err := maySignIn(user); err != nil {
		return err
	}
	if err := mayActAs(httpapi.ActorFrom(r.Context()), user); err != nil {
		return err
	}
	if err := withinOwn(r, rbac.Scope{}); err != nil {
		return err
	}
	token, err := s.storeKey(r.Context(), user, dbsqlc.InsertAPIKeyParams{
		UserID: user.ID, Kind: kindSession,
	}, s.lifetimes.Session)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusCreated, sdk.CreateTokenResponse{Key: token.Reveal()})
}

// storeKey stores a new key of a user on request, and returns its token.
func (s *Service) storeKey(
	ctx context.Context, user dbsqlc.User, p dbsqlc.InsertAPIKeyParams, lifetime time.Duration,
) (token secret.Token, err error) {
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		if p.Kind == kindToken {
			if err := q.FreeTokenName(ctx, dbsqlc.FreeTokenNameParams{UserID: user.ID, Name: p.Name}); err != nil {
				return err
			}
		}
		var key dbsqlc.ApiKey
		if token, key, err = newKey(ctx, q, p, lifetime); err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfKey(user, dbsqlc.ApiKey{}, key))
	})
	return token, err
}

func (s *Service) tokenConfig(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.APIKey)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.TokenConfig{
		MaxTokenLifetime: s.lifetimes.longest(user), DefaultTokenLifetime: s.lifetimes.of(user),
	})
}

func (s *Service) getToken(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.APIKey)
	if err != nil {
		return err
	}
	key, err := s.db.GetTokenByName(r.Context(), dbsqlc.GetTokenByNameParams{
		UserID: user.ID, Name: r.PathValue("name"),
	})
	return writeKey(w, user, key, err)
}

func (s *Service) getKey(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.APIKey)
	if err != nil {
		return err
	}
	key, err := s.db.GetAPIKey(r.Context(), dbsqlc.GetAPIKeyParams{ID: r.PathValue("key"), UserID: user.ID})
	return writeKey(w, user, key, err)
}

func writeKey(w http.ResponseWriter, user dbsqlc.User, key dbsqlc.ApiKey, err error) error {
	if err != nil {
		return lookup.Fault(err, rbac.APIKey, "read key")
	}
	return httpapi.Write(w, http.StatusOK, toKey(key, sdk.LoginType(user.LoginType)))
}

func (s *Service) deleteKey(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Delete, rbac.APIKey)
	if err != nil {
		return err
	}
	// The deleted key may be the request's own, in which case the request ends with it: see logout.
	err = s.endKey(context.WithoutCancel(r.Context()), user, r.PathValue("key"), func(ctx context.Context, q *dbsqlc.Queries, key dbsqlc.ApiKey) (dbsqlc.ApiKey, error) {
		_, err := q.DeleteAPIKey(ctx, dbsqlc.DeleteAPIKeyParams{ID: key.ID, UserID: user.ID})
		return dbsqlc.ApiKey{}, err
	})
	if err != nil {
		return lookup.Fault(err, rbac.APIKey, "delete key")
	}
	s.notifyRevoked(user.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// expireKey ends a session or token but keeps its row, so that lists can still show it.
func (s *Service) expireKey(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Delete, rbac.APIKey)
	if err != nil {
		return err
	}
	err = s.endKey(context.WithoutCancel(r.Context()), user, r.PathValue("key"), func(ctx context.Context, q *dbsqlc.Queries, key dbsqlc.ApiKey) (dbsqlc.ApiKey, error) {
		if _, err := q.ExpireAPIKey(ctx, dbsqlc.ExpireAPIKeyParams{ID: key.ID, UserID: user.ID}); err != nil {
			return key, err
		}
		return q.GetAPIKey(ctx, dbsqlc.GetAPIKeyParams{ID: key.ID, UserID: user.ID})
	})
	if err != nil {
		return lookup.Fault(err, rbac.APIKey, "expire key")
	}
	s.notifyRevoked(user.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// endKey changes a user's session or token with change, which returns what is left of it.
func (s *Service) endKey(ctx context.Context, user dbsqlc.User, id string, change func(context.Context, *dbsqlc.Queries, dbsqlc.ApiKey) (dbsqlc.ApiKey, error)) error {
	return s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		before, err := q.GetAPIKey(ctx, dbsqlc.GetAPIKeyParams{ID: id, UserID: user.ID})
		if err != nil {
			return err
		}
		after, err := change(ctx, q, before)
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfKey(user, before, after))
	})
}

// toKey returns a key as the API shows it. login is how its user signs in, which is where a session comes from.
func toKey(k dbsqlc.ApiKey, login sdk.LoginType) sdk.APIKey {
	if k.Kind != kindSession {
		login = sdk.LoginToken
	}
	scope, scopes, allow := "all", k.Scopes, k.AllowList
	switch {
	case scopes == nil:
		scopes = []string{"all"}
	case slices.Equal(scopes, []string{"application_connect"}):
		scope = "application_connect"
	default:
		scope = "" // it has no name in the field that clients of before know
	}
	if len(allow) == 0 {
		allow = []string{"*:*"}
	}
	return sdk.APIKey{
		ID: k.ID, UserID: k.UserID, LastUsed: k.LastUsedAt, ExpiresAt: k.ExpiresAt, CreatedAt: k.CreatedAt,
		UpdatedAt: k.LastUsedAt,
		LoginType: login, Scope: scope, Scopes: scopes, AllowList: allow, TokenName: k.Name,
		LifetimeSeconds: k.LifetimeSeconds,
	}
}
