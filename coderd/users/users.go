// Package users owns accounts: their profiles, sign-in, tokens and keys, uploaded files, and the basic facts about the
// deployment that clients request first. It authenticates requests. It knows no template, workspace or mesh; OnRevoked
// registers callbacks for users who lose a right.
package users

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Options configures a Service.
type Options struct {
	DB     *database.DB
	Logger *slog.Logger
	// Keys encrypt the users' private keys for Git. Required where those are read or created.
	Keys *keyring.Ring
	// AccessURL is the address at which users reach the server. It decides whether cookies require TLS.
	AccessURL *url.URL
	// OnlyOwnersUsePasswords refuses passwords of users who are not owners of the deployment.
	OnlyOwnersUsePasswords bool
	// SyncedRoles means that the claims of the identity provider decide about the roles of users who sign in with
	// OpenID Connect.
	SyncedRoles bool
	// QuietHours are those of users without their own. Empty means policy.DefaultQuietHours.
	QuietHours string
	// CustomQuietHours lets users set their own.
	CustomQuietHours bool
	// Lifetimes are those of sessions and tokens. The zero value means the defaults.
	Lifetimes Lifetimes
	// SetupCode is what the sender of the first user must know. Empty: clients cannot create it.
	SetupCode secret.Token
	// Presentation is what the operator tells users and their programs.
	Presentation Presentation
	// Notifications records what users are told. Nil: nothing.
	Notifications *notifications.Recorder
	// Signer signs the codes with which browsers sign programs in. Required where those are created or used.
	Signer *signed.Signer
}

// Service serves accounts. Safe for concurrent use.
type Service struct {
	db        *database.DB
	log       *slog.Logger
	keys      *keyring.Ring
	accessURL *url.URL
	lifetimes Lifetimes
	passwords *hasher
	tries     *tries

	onlyOwnersUsePasswords bool
	syncedRoles            bool
	quietHours             string
	customQuietHours       bool
	setupCode              secret.Token
	presentation           Presentation
	notifications          *notifications.Recorder
	signer                 *signed.Signer

	mu      sync.Mutex
	revoked []func(uuid.UUID) // guarded by mu
}

// New returns the service.
func New(d Options) *Service {
	return &Service{
		db: d.DB, log: d.Logger, keys: d.Keys, accessURL: d.AccessURL, lifetimes: d.Lifetimes.orDefaults(), passwords: newHasher(), tries: newTries(),
		onlyOwnersUsePasswords: d.OnlyOwnersUsePasswords, syncedRoles: d.SyncedRoles, quietHours: cmp.Or(d.QuietHours, policy.DefaultQuietHours), customQuietHours: d.CustomQuietHours,
		setupCode: d.SetupCode, presentation: d.Presentation, notifications: d.Notifications, signer: d.Signer,
	}
}

// OnRevoked registers fn, which is called after the change is stored, with a user who was suspended or deleted, whose
// roles changed, or whose tokens were revoked. fn must not block.
func (s *Service) OnRevoked(fn func(userID uuid.UUID)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked = append(s.revoked, fn)
}

func (s *Service) notifyRevoked(userID uuid.UUID) {
	s.mu.Lock()
	hooks := slices.Clone(s.revoked)
	s.mu.Unlock()
	for _, fn := range hooks {
		fn(userID)
	}
}

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	const v2 = "/api/v2/"
	needs := rbac.Needs

	mux.Handle("GET "+v2+"{$}", rbac.Public, s.ping)
	mux.Handle("GET "+v2+"buildinfo", rbac.Public, s.buildInfo)
	mux.Handle("GET "+v2+"appearance", rbac.Public, s.appearance)
	mux.Handle("PUT "+v2+"appearance", needs(rbac.Update, rbac.Deployment), s.setAppearance,
		audit.On(audit.Write, audit.Appearance))
	mux.Handle("GET "+v2+"entitlements", rbac.AnyToken, s.entitlements)
	mux.Handle("GET "+v2+"experiments", rbac.AnyToken, s.experiments)
	mux.Handle("GET "+v2+"deployment/ssh", rbac.AnyToken, s.sshConfig)

	mux.Handle("GET "+v2+"insights/user-status-counts", needs(rbac.Read, rbac.Deployment), s.statusCounts)

	mux.Handle("GET "+v2+"users/first", rbac.Public, s.hasFirst)
	mux.Handle("POST "+v2+"users/first", rbac.Public, s.createFirst, audit.On(audit.Create, audit.User))
	mux.Handle("POST "+v2+"users/validate-password", rbac.Public, s.validatePassword,
		audit.Exempt("it only judges a password and stores nothing"))
	mux.Handle("POST "+v2+"users/login", rbac.Public, s.login, audit.On(audit.Login, audit.APIKey))
	mux.Handle("POST "+v2+"users/logout", rbac.SignedIn, s.logout, audit.On(audit.Logout, audit.APIKey))

	mux.Handle("GET "+v2+"users", needs(rbac.Read, rbac.User), s.list)
	mux.Handle("GET "+v2+"users/export", needs(rbac.Read, rbac.User), s.export)
	mux.Handle("POST "+v2+"users", needs(rbac.Create, rbac.User), s.create, audit.On(audit.Create, audit.User),
		httpapi.Creates("users/{created}"))
	mux.Handle("GET "+v2+"users/{user}", needs(rbac.Read, rbac.User), s.get)
	mux.Handle("DELETE "+v2+"users/{user}", needs(rbac.Delete, rbac.User), s.remove, audit.On(audit.Delete, audit.User))
	mux.Handle("PUT "+v2+"users/{user}/status/suspend", needs(rbac.Manage, rbac.User), s.setStatus(sdk.UserSuspended),
		audit.On(audit.Write, audit.User))
	mux.Handle("PUT "+v2+"users/{user}/status/activate", needs(rbac.Manage, rbac.User), s.setStatus(sdk.UserActive),
		audit.On(audit.Write, audit.User))
	mux.Handle("GET "+v2+"users/roles", needs(rbac.Read, rbac.User), s.listRoles)
	mux.Handle("GET "+v2+"users/{user}/roles", needs(rbac.Read, rbac.User), s.getRoles)
	mux.Handle("PUT "+v2+"users/{user}/roles", needs(rbac.Manage, rbac.User), s.setRoles,
		audit.On(audit.Write, audit.User))
	mux.Handle("PUT "+v2+"users/{user}/profile", needs(rbac.Update, rbac.User), s.setProfile,
		audit.On(audit.Write, audit.User))
	mux.Handle("PUT "+v2+"users/{user}/password", needs(rbac.Update, rbac.User), s.setPassword,
		audit.On(audit.Write, audit.User))
	mux.Handle("GET "+v2+"users/{user}/connection-types", needs(rbac.Read, rbac.User), s.connectionTypes)
	mux.Handle("GET "+v2+"users/{user}/preferences", needs(rbac.Read, rbac.User), s.getPreferences)
	mux.Handle("PUT "+v2+"users/{user}/preferences", needs(rbac.Update, rbac.User), s.setPreferences,
		audit.On(audit.Write, audit.User))
	mux.Handle("GET "+v2+"users/{user}/appearance", needs(rbac.Read, rbac.User), s.getUserAppearance)
	mux.Handle("PUT "+v2+"users/{user}/appearance", needs(rbac.Update, rbac.User), s.setUserAppearance,
		audit.On(audit.Write, audit.User))
	mux.Handle("GET "+v2+"users/{user}/quiet-hours", needs(rbac.Read, rbac.User), s.getQuietHours)
	mux.Handle("PUT "+v2+"users/{user}/quiet-hours", needs(rbac.Update, rbac.User), s.setQuietHours,
		audit.On(audit.Write, audit.User))

	mux.Handle("GET "+v2+"auth/scopes", rbac.AnyToken, s.listScopes)
	mux.Handle("GET "+v2+"users/{user}/keys/tokens", needs(rbac.Read, rbac.APIKey), s.listTokens)
	mux.Handle("POST "+v2+"users/{user}/keys/tokens", needs(rbac.Create, rbac.APIKey), s.createToken,
		audit.On(audit.Create, audit.APIKey), httpapi.CreatesSecret("The token"))
	mux.Handle("GET "+v2+"users/{user}/keys/tokens/tokenconfig", needs(rbac.Read, rbac.APIKey), s.tokenConfig)
	mux.Handle("GET "+v2+"users/{user}/keys/tokens/{name}", needs(rbac.Read, rbac.APIKey), s.getToken)
	mux.Handle("POST "+v2+"users/{user}/keys", needs(rbac.Create, rbac.APIKey), s.createSession,
		audit.On(audit.Create, audit.APIKey), httpapi.CreatesSecret("The session"))
	s.handoffRoutes(mux)
	s.loginDeviceRoutes(mux)
	mux.Handle("GET "+v2+"users/{user}/keys/{key}", needs(rbac.Read, rbac.APIKey), s.getKey)
	mux.Handle("DELETE "+v2+"users/{user}/keys/{key}", needs(rbac.Delete, rbac.APIKey), s.deleteKey,
		audit.On(audit.Delete, audit.APIKey))
	mux.Handle("PUT "+v2+"users/{user}/keys/{key}/expire", needs(rbac.Delete, rbac.APIKey), s.expireKey,
		audit.On(audit.Write, audit.APIKey))

	mux.Handle("GET "+v2+"users/{user}/sessions", needs(rbac.Read, rbac.APIKey), s.listSessions)
	mux.Handle("DELETE "+v2+"users/{user}/sessions", needs(rbac.Delete, rbac.APIKey), s.endSessions,
		audit.On(audit.Logout, audit.APIKey))
	mux.Handle("DELETE "+v2+"users/{user}/sessions/{key}", needs(rbac.Delete, rbac.APIKey), s.endSession,
		audit.On(audit.Delete, audit.APIKey))

	mux.Handle("GET "+v2+"users/{user}/gitsshkey", needs(rbac.Read, rbac.SSHKey), s.getSSHKey)
	mux.Handle("PUT "+v2+"users/{user}/gitsshkey", needs(rbac.Update, rbac.SSHKey), s.replaceSSHKey,
		audit.On(audit.Write, audit.GitSSHKey))

	mux.Handle("POST "+v2+"files", needs(rbac.Create, rbac.File), s.upload, audit.On(audit.Create, audit.File))
	mux.Handle("GET "+v2+"files/{file}", needs(rbac.Read, rbac.File), s.download)
}

// Find returns the living user that a path segment names: "me", an id or a username. It does not check whether the
// actor may see the user; it returns the fault NotFound if there is none.
func (s *Service) Find(ctx context.Context, actor rbac.Actor, reference string) (dbsqlc.User, error) {
	var user dbsqlc.User
	id, err := uuid.Parse(reference)
	switch {
	case reference == sdk.Me:
		user, err = s.db.GetUser(ctx, actor.UserID)
	case err == nil:
		user, err = s.db.GetUser(ctx, id)
	default:
		user, err = s.db.GetUserByName(ctx, reference)
	}
	if err != nil {
		return dbsqlc.User{}, lookup.Fault(err, rbac.User, "find user")
	}
	return user, nil
}

// Target returns the user in the path if the actor may perform the action on the resource of that user.
func (s *Service) Target(r *http.Request, action rbac.Action, resource rbac.Resource) (dbsqlc.User, error) {
	actor := httpapi.ActorFrom(r.Context())
	user, err := s.Find(r.Context(), actor, r.PathValue("user"))
	if err != nil {
		return dbsqlc.User{}, err
	}
	// Only actors who may see a user learn that it exists.
	if err := actor.May(rbac.Read, object(user)); err != nil {
		return dbsqlc.User{}, err
	}
	account := object(user)
	if action != rbac.Read && user.ID != actor.UserID {
		if account, err = s.Account(r.Context(), user); err != nil {
			return dbsqlc.User{}, err
		}
	}
	return user, actor.May(action, account.As(resource))
}

// object returns the account as an object of permissions to read it.
func object(u dbsqlc.User) rbac.Object { return rbac.Of(rbac.User, u.ID) }

// Account returns the account as an object of all permissions, with the roles of its user.
func (s *Service) Account(ctx context.Context, u dbsqlc.User) (rbac.Object, error) {
	holder, err := s.db.GetActor(ctx, u.ID)
	if err != nil {
		return rbac.Object{}, lookup.Fault(err, rbac.User, "read the user's roles")
	}
	account, o := actorOf(holder), object(u)
	o.Account = &account
	return o, nil
}
