package users

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// The operations that other ways to sign in need (coderd/signin).

// Account is what an identity provider says of a user who has no account yet.
type Account struct {
	LoginType             sdk.LoginType
	Email, Username, Name string
}

// CreateFrom stores an active account for a user of an identity provider, in a transaction. The username is adapted if
// it is not valid or is taken. Its faults tell the user what is wrong.
func (s *Service) CreateFrom(ctx context.Context, q *dbsqlc.Queries, a Account) (dbsqlc.User, error) {
	// Two first sign-ins must not choose the same free name.
	if err := q.LockUsers(ctx); err != nil {
		return dbsqlc.User{}, err
	}
	if exists, err := q.HasUsers(ctx); err != nil {
		return dbsqlc.User{}, fmt.Errorf("look for users: %w", err)
	} else if !exists {
		return dbsqlc.User{}, fault.New(fault.Forbidden, "This deployment has no users yet.").
			WithDetail("Its operator must create the first user, who owns the deployment, with: coder login <url>")
	}
	name, err := freeUsername(ctx, q, validUsername(a.Username, a.Email))
	if err != nil {
		return dbsqlc.User{}, err
	}
	n := newUser{
		Email: a.Email, Username: name, Name: validName(a.Name), LoginType: a.LoginType, Status: sdk.UserActive,
	}
	if err := n.check(); err != nil {
		return dbsqlc.User{}, err
	}
	user, err := n.store(ctx, q, "")
	if err != nil {
		return user, err
	}
	if err := recordSelf(ctx, q, audit.Create, dbsqlc.User{}, user); err != nil {
		return user, err
	}
	return user, s.notifyAdmins(ctx, q, notifications.UserCreated, user)
}

// UpdateFrom stores what the identity provider now says of a user, unless it is not valid or another user has the
// address.
func (s *Service) UpdateFrom(
	ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User, email, name string,
) (dbsqlc.User, error) {
	if name = validName(name); name == "" {
		name = user.Name
	}
	if email == user.Email && name == user.Name || checkEmail(email) != "" {
		return user, nil
	}
	updated, err := q.UpdateUserEmail(ctx, dbsqlc.UpdateUserEmailParams{ID: user.ID, Email: email, Name: name})
	if database.IsNotFound(err) { // the address is another user's
		return user, nil
	}
	if err != nil {
		return updated, err
	}
	return updated, recordSelf(ctx, q, audit.Write, user, updated)
}

// recordSelf records what a user's sign-in did to their own account.
func recordSelf(ctx context.Context, q *dbsqlc.Queries, action audit.Action, before, after dbsqlc.User) error {
	e := audit.OfUser(before, after)
	e.Action, e.User = action, &audit.Account{ID: after.ID, Name: after.Username}
	return audit.Record(ctx, q, e)
}

// StartSession starts a session for a user, in a transaction, and wakes the user. It returns the fault Unauthenticated
// if the account is suspended.
func (s *Service) StartSession(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User) (secret.Token, error) {
	if user.Status == string(sdk.UserSuspended) {
		return "", suspended()
	}
	if err := q.DeleteExpiredKeys(ctx, user.ID); err != nil {
		return "", err
	}
	if err := q.TouchUser(ctx, user.ID); err != nil {
		return "", err
	}
	token, key, err := newKey(ctx, q, dbsqlc.InsertAPIKeyParams{
		UserID: user.ID, Kind: kindSession, UserAgent: agentOf(ctx), Address: addressOf(ctx),
	}, s.lifetimes.Session)
	if err != nil {
		return "", err
	}
	return token, signedIn(ctx, q, user, key)
}

// KeepSession stores a session in the browser that sent the request.
func (s *Service) KeepSession(w http.ResponseWriter, token secret.Token) {
	s.setCookie(w, token.Reveal(), int(s.lifetimes.Session/time.Second))
}

// ProvePassword returns a fault unless the password is the user's, within the bounds on guessing.
func (s *Service) ProvePassword(w http.ResponseWriter, r *http.Request, user dbsqlc.User, password string) error {
	good, err := s.checkPair(w, r, user.Email, password, user.PasswordHash)
	if err == nil && !good {
		err = fault.New(fault.Invalid, "The password is wrong.").WithField("password", "is wrong")
	}
	return err
}

// SetPassword sets the password of a user who has proven to be one in another way, and ends the user's sessions.
func (s *Service) SetPassword(ctx context.Context, user dbsqlc.User, password string) error {
	return s.changePassword(ctx, user, password, "", kindSession)
}

// CheckPassword returns the fault Invalid if a password cannot be a user's new one.
func (s *Service) CheckPassword(user dbsqlc.User, password string) error {
	if problem := checkPassword(password, user.Username, user.Email); problem != "" {
		return fault.New(fault.Invalid, "The new password %s.", problem).WithField("password", problem)
	}
	return nil
}

// EndSessions ends a user's sessions, and tells their holders why. Tokens that the user created live on.
func (s *Service) EndSessions(ctx context.Context, user uuid.UUID, why string) error {
	var n int64
	err := s.db.InTx(ctx, func(q *dbsqlc.Queries) (err error) {
		if n, err = q.EndUserSessions(ctx, dbsqlc.EndUserSessionsParams{
			UserID: user, EndReason: why,
		}); err != nil || n == 0 {
			return err
		}
		return s.notifyUser(ctx, q, notifications.SignInRefused, dbsqlc.User{ID: user})
	})
	if err != nil {
		return fmt.Errorf("end sessions: %w", err)
	}
	if n > 0 {
		s.notifyRevoked(user)
	}
	return nil
}

// SignOut ends a user's sessions because their identity provider says that they signed out. Tokens that the user
// created live on.
func (s *Service) SignOut(ctx context.Context, user dbsqlc.User, why string) error {
	var n int64
	err := s.db.InTx(ctx, func(q *dbsqlc.Queries) (err error) {
		if n, err = q.EndUserSessions(ctx, dbsqlc.EndUserSessionsParams{
			UserID: user.ID, EndReason: why,
		}); err != nil || n == 0 {
			return err
		}
		return audit.Record(ctx, q, audit.Entry{
			Action: audit.Logout, Kind: audit.APIKey, ID: user.ID, Name: user.Username, By: audit.ByProvider,
			Fields: map[string]any{"sessions": n},
		})
	})
	if err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	if n > 0 {
		s.notifyRevoked(user.ID)
	}
	return nil
}

// maxUsername is the length of a username, in characters.
const maxUsername = 32

// validUsername turns what an identity provider calls a user into a valid username: its letters and digits, with single
// hyphens between them. An address counts as its local part. It returns "user" if nothing is left.
func validUsername(claim, email string) string {
	for _, text := range []string{claim, email} {
		text, _, _ = strings.Cut(text, "@")
		var b strings.Builder
		for _, r := range text {
			switch {
			case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
				b.WriteRune(r)
			case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
				b.WriteByte('-')
			}
			if b.Len() == maxUsername {
				break
			}
		}
		if name := strings.Trim(b.String(), "-"); name != "" && checkUsername(name) == "" {
			return name
		}
	}
	return "user"
}

// nameTries bounds the search for a free username.
const nameTries = 1000

// freeUsername returns the name, or the name with the first number that makes it free.
func freeUsername(ctx context.Context, q *dbsqlc.Queries, name string) (string, error) {
	for n, try := 2, name; n < nameTries; n++ {
		_, err := q.GetUserByName(ctx, try)
		if database.IsNotFound(err) {
			return try, nil
		}
		if err != nil {
			return "", fmt.Errorf("look for username: %w", err)
		}
		suffix := "-" + strconv.Itoa(n)
		try = strings.TrimRight(name[:min(len(name), maxUsername-len(suffix))], "-") + suffix
	}
	return "", fault.New(fault.Conflict, "The username %q is taken, and so are the ones like it.", name).
		WithDetail("Ask an owner of this deployment to create your account.")
}

// validName returns a full name without what checkName refuses.
func validName(name string) string {
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if httpapi.Hidden(r) {
			return ' '
		}
		return r
	}, name))
	for len(name) > 128 {
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	return name
}
