package users

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func (s *Service) hasFirst(w http.ResponseWriter, r *http.Request) error {
	exists, err := s.db.HasUsers(r.Context())
	if err != nil {
		return fmt.Errorf("look for users: %w", err)
	}
	if !exists {
		return fault.New(fault.NotFound, "This deployment has no users yet.").
			WithDetail("Create the first with: coder login <url>")
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The first user has been created."})
}

func (s *Service) createFirst(w http.ResponseWriter, r *http.Request) error {
	var req sdk.CreateFirstUserRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	// The insert checks this again authoritatively; the check here saves the hash.
	if exists, err := s.db.HasUsers(r.Context()); err != nil || exists {
		return firstTaken(err)
	}
	if !isSetupCode(s.setupCode, req.SetupCode) {
		return errSetupCode()
	}
	user, err := s.insert(r.Context(), newUser{
		Email: req.Email, Username: req.Username, Name: req.Name, Password: req.Password, LoginType: sdk.LoginPassword,
		Status: sdk.UserActive, Roles: []string{rbac.RoleOwner}, First: true,
	})
	if err != nil {
		return err
	}
	org, err := s.db.GetDefaultOrganization(r.Context())
	if err != nil {
		return fmt.Errorf("read organization: %w", err)
	}
	s.log.Info("first user created", "user", user.Username, "addr", httpapi.ClientAddr(r.Context()))
	return httpapi.Write(w, http.StatusCreated, sdk.CreateFirstUserResponse{UserID: user.ID, OrganizationID: org.ID})
}

func firstTaken(err error) error {
	if err != nil {
		return fmt.Errorf("look for users: %w", err)
	}
	return fault.New(fault.Conflict, "The first user already exists.").
		WithDetail("Sign in, or ask an owner for an account.")
}

// CreateOwner adds an owner. It is for operators who have access to the database but no account.
func (s *Service) CreateOwner(ctx context.Context, req sdk.CreateFirstUserRequest) (uuid.UUID, error) {
	user, err := s.insert(audit.OnHost(ctx), newUser{
		Email: req.Email, Username: req.Username, Name: req.Name, Password: req.Password, LoginType: sdk.LoginPassword,
		Status: sdk.UserActive, Roles: []string{rbac.RoleOwner},
	})
	return user.ID, err
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	if err := httpapi.ActorFrom(r.Context()).May(rbac.Create, rbac.Of(rbac.User, uuid.Nil)); err != nil {
		return err
	}
	var req sdk.CreateUserRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := mayJoin(httpapi.ActorFrom(r.Context()), req.OrganizationIDs); err != nil {
		return err
	}
	n := newUser{
		Email: req.Email, Username: req.Username, Name: req.Name, Password: req.Password, LoginType: req.LoginType,
		Status:        sdk.UserActive,
		Organizations: req.OrganizationIDs, ServiceAccount: req.ServiceAccount,
	}
	if n.LoginType == "" && n.ServiceAccount {
		n.LoginType = sdk.LoginNone
	}
	if n.LoginType == "" {
		n.LoginType = sdk.LoginPassword
	}
	if req.UserStatus != nil {
		n.Status = *req.UserStatus
	}
	user, err := s.insert(r.Context(), n)
	if err != nil {
		return err
	}
	return s.write(w, r, http.StatusCreated, user)
}

// serviceDomain ends the placeholder that service accounts have for an address: nothing delivers to names below
// .invalid (RFC 2606).
const serviceDomain = "@service-account.invalid"

// Address returns a user's email address, "" for service accounts.
func Address(u dbsqlc.User) string {
	if u.IsServiceAccount {
		return ""
	}
	return u.Email
}

// newUser is an account to be created.
type newUser struct {
	Email, Username, Name, Password string
	LoginType                       sdk.LoginType
	Status                          sdk.UserStatus
	Roles                           []string
	First                           bool        // only if no user exists
	Organizations                   []uuid.UUID // none: the default one
	ServiceAccount                  bool        // without Email and Password
}

// check returns the fault Invalid if the account cannot be created.
func (n newUser) check() error {
	f := fault.New(fault.Invalid, "The account cannot be created.")
	check(f, "username", checkUsername(n.Username))
	switch {
	case !n.ServiceAccount:
		check(f, "email", checkEmail(n.Email))
	case n.Email != "":
		check(f, "email", "must be empty for a service account")
	}
	check(f, "name", checkName(n.Name))
	switch n.LoginType {
	case sdk.LoginPassword:
		if n.ServiceAccount {
			check(f, "login_type", "must be none for a service account")
			break
		}
		check(f, "password", checkPassword(n.Password, n.Username, n.Email))
	case sdk.LoginNone, sdk.LoginOIDC, sdk.LoginGitHub:
		if n.ServiceAccount && n.LoginType != sdk.LoginNone {
			check(f, "login_type", "must be none for a service account")
		}
		if n.Password != "" {
			check(f, "password", "must be empty for a user without password sign-in")
		}
	default:
		check(f, "login_type", "must be password, oidc, github or none")
	}
	if n.Status != sdk.UserActive && n.Status != sdk.UserDormant {
		check(f, "user_status", "must be active or dormant")
	}
	if len(f.Fields) > 0 {
		return f
	}
	return nil
}

// store inserts the checked account, with the hash of its password, as a member of its organizations.
func (n newUser) store(ctx context.Context, q *dbsqlc.Queries, hash string) (dbsqlc.User, error) {
	id := uuid.New()
	if n.ServiceAccount {
		n.Email = id.String() + serviceDomain
	}
	user, err := q.InsertUser(ctx, dbsqlc.InsertUserParams{
		ID: id, Username: n.Username, Email: n.Email, Name: n.Name, PasswordHash: hash,
		LoginType: string(n.LoginType), Status: string(n.Status), Roles: append([]string{}, n.Roles...),
		IsServiceAccount: n.ServiceAccount,
	})
	if err != nil {
		return user, taken(err)
	}
	return user, join(ctx, q, user, n.Organizations)
}

// insert validates and stores a new user, with a key pair for Git.
func (s *Service) insert(ctx context.Context, n newUser) (dbsqlc.User, error) {
	n.Email, n.Username, n.Name = strings.TrimSpace(n.Email), strings.TrimSpace(n.Username), strings.TrimSpace(n.Name)
	if err := n.check(); err != nil {
		return dbsqlc.User{}, err
	}
	var hash string
	var err error
	if n.LoginType == sdk.LoginPassword {
		if hash, err = s.passwords.hash(ctx, newPair("", httpapi.ClientAddr(ctx)), n.Password); err != nil {
			return dbsqlc.User{}, fmt.Errorf("hash password: %w", err)
		}
	}
	var user dbsqlc.User
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		if n.First {
			if err := q.LockUsers(ctx); err != nil {
				return err
			}
			if exists, err := q.HasUsers(ctx); err != nil || exists {
				return firstTaken(err)
			}
		}
		user, err = n.store(ctx, q, hash)
		if err != nil {
			return err
		}
		e := audit.OfUser(dbsqlc.User{}, user)
		e.Action = audit.Create // also without a request
		if n.First {
			e.User = &audit.Account{ID: user.ID, Name: user.Username}
		}
		if err := audit.Record(ctx, q, e); err != nil {
			return err
		}
		return s.notifyAdmins(ctx, q, notifications.UserCreated, user)
	})
	return user, err
}

// taken returns the fault for a name or address that another user has.
func taken(err error) error {
	switch {
	case database.IsUniqueViolation(err, "users_username"):
		return fault.New(fault.Conflict, "This username is taken.").WithField("username", "is taken")
	case database.IsUniqueViolation(err, "users_email"):
		return fault.New(fault.Conflict, "This email address is taken.").WithField("email", "is taken")
	case err != nil:
		return fmt.Errorf("store user: %w", err)
	}
	return nil
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	return s.write(w, r, http.StatusOK, user)
}

func (s *Service) remove(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Delete, rbac.User)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if user.ID == httpapi.ActorFrom(ctx).UserID {
		return fault.New(fault.Invalid, "You cannot delete your own account.").WithDetail("Another owner can.")
	}
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		if err := keepOwner(ctx, q, user); err != nil {
			return err
		}
		if _, err := q.LockUser(ctx, user.ID); err != nil { // keepOwner has seen the row, so it exists
			return err
		}
		n, err := q.CountLivingWorkspaces(ctx, user.ID)
		if err != nil {
			return err
		}
		if n > 0 {
			return fault.New(fault.Conflict, "%s still owns %d workspaces.", user.Username, n).
				WithDetail("Delete them first. Their data will be lost.")
		}
		if err := q.DeleteUserKeys(ctx, dbsqlc.DeleteUserKeysParams{UserID: user.ID, Kinds: []string{kindSession, kindToken, kindWorkspace}}); err != nil {
			return err
		}
		if err := q.DeleteUserSecrets(ctx, user.ID); err != nil {
			return err
		}
		if err := deleteCredentials(ctx, q, user.ID); err != nil {
			return err
		}
		if err := q.DeleteUserConsents(ctx, user.ID); err != nil {
			return err
		}
		if err := q.DeleteUserExternalAuthLinks(ctx, user.ID); err != nil {
			return err
		}
		if err := q.DeleteUserLinks(ctx, user.ID); err != nil {
			return err
		}
		if err := q.DeleteGitSSHKey(ctx, user.ID); err != nil {
			return err
		}
		if err := q.DeleteUser(ctx, user.ID); err != nil {
			return err
		}
		if err := audit.Record(ctx, q, audit.OfUser(user, dbsqlc.User{})); err != nil {
			return err
		}
		return s.notifyAdmins(ctx, q, notifications.UserDeleted, user)
	})
	if err != nil {
		return fmt.Errorf("delete user: %w", err)
	}
	s.log.Info("user deleted", "user", user.Username)
	s.notifyRevoked(user.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
