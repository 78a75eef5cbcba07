package signin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// identity is who signed in at a provider.
type identity struct {
	LoginType             sdk.LoginType
	Issuer, Subject       string
	Email, Username, Name string
	Verified              verification
	VouchedFor            bool            // the operator vouches for the provider's addresses
	Claims                json.RawMessage // as they are stored
	Said                  idpsync.Claims  // for memberships
	Token                 *oauth2.Token
}

// policy says who may sign in at a provider.
type policy struct {
	Domains             []string // of email addresses; empty means all
	GroupField          string
	Groups              []string // of which the claim must name one; empty means all users
	AllowSignups        bool
	SignupsDisabledText string
}

// admit returns a fault if the identity may not sign in, whatever account it has.
func (p policy) admit(who identity) error {
	if who.Email == "" {
		return fault.New(fault.Forbidden, "The identity provider did not send an email address.").
			WithDetail("The operator must have it send the claim with the address: see --oidc-scopes and --oidc-email-field.")
	}
	if who.Verified != verifiedEmail && !who.VouchedFor {
		f := fault.New(fault.Forbidden, "The email address %s is not verified at the identity provider.", who.Email)
		if who.Verified == unsaid {
			return f.WithDetail("The provider does not say whether it verifies addresses. If it does, the operator can set --oidc-ignore-email-verified.")
		}
		return f.WithDetail("Verify it there, then sign in again.")
	}
	if err := p.admitGroups(who); err != nil || len(p.Domains) == 0 {
		return err
	}
	domain := who.Email[strings.LastIndexByte(who.Email, '@')+1:]
	if !slices.ContainsFunc(p.Domains, func(d string) bool { return strings.EqualFold(strings.TrimPrefix(d, "@"), domain) }) {
		return fault.New(fault.Forbidden, "Addresses of %s may not sign in here.", domain).
			WithDetail("Use an address of %s.", strings.Join(p.Domains, " or "))
	}
	return nil
}

// admitGroups returns a fault unless the identity has one of the groups that may sign in.
func (p policy) admitGroups(who identity) error {
	if len(p.Groups) == 0 {
		return nil
	}
	if found, _ := idpsync.Any(who.Said, p.GroupField, p.Groups); !found {
		return fault.New(fault.Forbidden, "You are not in a group that may sign in here.").
			WithDetail("They are: %s. Ask the administrator of the identity provider. The claim is %s.",
				strings.Join(p.Groups, ", "), p.GroupField)
	}
	return nil
}

// account returns the account of an identity, in a transaction: the one that it belongs to, else one that was created
// for it, else a new one.
func (s *Service) account(ctx context.Context, q *dbsqlc.Queries, who identity, p policy) (dbsqlc.User, error) {
	if err := p.admit(who); err != nil {
		return dbsqlc.User{}, err
	}
	known, err := linked(ctx, q, who)
	if database.IsNotFound(err) {
		// Of two first sign-ins, the second finds the account that the first has created.
		if err := q.LockUsers(ctx); err != nil {
			return dbsqlc.User{}, err
		}
		known, err = linked(ctx, q, who)
	}
	switch {
	case err == nil && known.LoginType != string(who.LoginType):
		return dbsqlc.User{}, fault.New(fault.Forbidden, "The account %s signs in with %s.", known.Username, sdk.LoginType(known.LoginType).Name()).
			WithDetail("Use that way on the sign-in page.")
	case err == nil:
		return s.opts.Accounts.UpdateFrom(ctx, q, known, who.Email, who.Name)
	case !database.IsNotFound(err):
		return dbsqlc.User{}, fmt.Errorf("look up identity: %w", err)
	}
	user, err := q.GetUserByEmail(ctx, who.Email)
	if database.IsNotFound(err) {
		if !p.AllowSignups {
			return dbsqlc.User{}, signupsDisabled(p.SignupsDisabledText)
		}
		return s.opts.Accounts.CreateFrom(ctx, q, users.Account{
			LoginType: who.LoginType, Email: who.Email, Username: who.Username, Name: who.Name,
		})
	}
	if err != nil {
		return dbsqlc.User{}, fmt.Errorf("look up address: %w", err)
	}
	return user, s.mayAdopt(ctx, q, user, who)
}

func linked(ctx context.Context, q *dbsqlc.Queries, who identity) (dbsqlc.User, error) {
	row, err := q.GetUserByLink(ctx, dbsqlc.GetUserByLinkParams{
		LoginType: string(who.LoginType), Issuer: who.Issuer, Subject: who.Subject,
	})
	return row.User, err
}

func signupsDisabled(text string) error {
	if text != "" {
		return fault.New(fault.Forbidden, "You do not have an account here.").WithDetail("%s", text)
	}
	return fault.New(fault.Forbidden, "You do not have an account here.").
		WithDetail("Ask an owner of this deployment to create one.")
}

// mayAdopt returns a fault unless an account with the identity's address was created to sign in with it.
func (s *Service) mayAdopt(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User, who identity) error {
	if !sameAddress(user.Email, who.Email) {
		return fault.New(fault.Forbidden, "The address %s looks like that of another account.", who.Email).
			WithDetail("Ask an owner of this deployment to create an account for you.")
	}
	if user.LoginType != string(who.LoginType) {
		return fault.New(fault.Forbidden, "The address %s belongs to an account that does not sign in with %s.", who.Email, who.LoginType.Name()).
			WithDetail("If the account is yours, sign in with its password and change this on your account page.")
	}
	if who.Verified == unverifiedEmail {
		return fault.New(fault.Forbidden, "The address %s belongs to an account, and the identity provider has not verified that it is yours.", who.Email).
			WithDetail("Verify it there, then sign in again.")
	}
	link, err := q.GetUserLink(ctx, dbsqlc.GetUserLinkParams{UserID: user.ID, LoginType: string(who.LoginType)})
	if database.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read link: %w", err)
	}
	if link.Issuer == who.Issuer { // the provider has given the address to another person
		return fault.New(fault.Forbidden, "The address %s belongs to an account of another user at the identity provider.", who.Email).
			WithDetail("Ask an owner of this deployment: they can delete that account, or change its address.")
	}
	return nil // the operator has changed the issuer
}

// sameAddress reports whether two addresses differ at most in the case of ASCII letters. What the database's lower()
// makes of other letters depends on its locale: in many, the Kelvin sign becomes the letter k, although the two
// addresses have different owners.
func sameAddress(a, b string) bool {
	lower := func(text string) string {
		return strings.Map(func(r rune) rune {
			if r >= 'A' && r <= 'Z' {
				r += 'a' - 'A'
			}
			return r
		}, text)
	}
	return lower(a) == lower(b)
}

// convertTo returns the account that is being converted, in a transaction.
func (s *Service) convertTo(
	ctx context.Context, q *dbsqlc.Queries, who identity, userID uuid.UUID,
) (dbsqlc.User, error) {
	if err := q.LockUsers(ctx); err != nil {
		return dbsqlc.User{}, err
	}
	user, err := q.GetUser(ctx, userID)
	if err != nil {
		return dbsqlc.User{}, fmt.Errorf("look up user: %w", err)
	}
	if user.LoginType != string(sdk.LoginPassword) {
		return dbsqlc.User{}, fault.New(fault.Conflict, "Your account already signs in with %s.",
			sdk.LoginType(user.LoginType).Name())
	}
	other, err := linked(ctx, q, who)
	switch {
	case err == nil && other.ID != userID:
		return dbsqlc.User{}, fault.New(fault.Conflict, "Another account already signs in with this identity.").
			WithDetail("Ask an owner of this deployment to delete that account first.")
	case err != nil && !database.IsNotFound(err):
		return dbsqlc.User{}, fmt.Errorf("look up identity: %w", err)
	}
	converted, err := q.UpdateUserLoginType(ctx, dbsqlc.UpdateUserLoginTypeParams{
		ID: userID, LoginType: string(who.LoginType),
	})
	if err != nil {
		return converted, err
	}
	e := audit.OfUser(user, converted)
	e.Action, e.User = audit.Write, &audit.Account{ID: userID, Name: user.Username}
	return converted, audit.Record(ctx, q, e)
}

// bind stores that an account belongs to an identity, and keeps the tokens of its sign-in.
func (s *Service) bind(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User, who identity) error {
	if err := q.UpsertUserLink(ctx, dbsqlc.UpsertUserLinkParams{
		UserID: user.ID, LoginType: string(who.LoginType), Issuer: who.Issuer, Subject: who.Subject, Claims: who.Claims,
	}); err != nil {
		return fmt.Errorf("store identity: %w", err)
	}
	return s.opts.Tokens.LinkIn(ctx, q, user.ID, extauth.SignInPrefix+string(who.LoginType), who.Token)
}
