package scim

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// user is a user as the provider sees it.
type user struct {
	dbsqlc.User
	userName, externalID, given, family string
	groups                              []object
}

func (s *Service) show(u user) object {
	out := object{
		"schemas": []string{schemaUser}, "id": u.ID.String(), "externalId": omit(u.externalID), "userName": u.userName, "displayName": u.Name,
		"name":   object{"formatted": u.Name, "givenName": u.given, "familyName": u.family},
		"emails": []object{{"value": u.Email, "type": "work", "primary": true}},
		"active": u.Status != string(sdk.UserSuspended), "groups": u.groups,
		"meta": object{
			"resourceType": "User", "created": u.CreatedAt.Format(time.RFC3339), "lastModified": u.UpdatedAt.Format(time.RFC3339), "location": s.location("Users", u.ID.String()),
		},
	}
	if u.groups == nil {
		out["groups"] = []object{}
	}
	if u.externalID == "" {
		delete(out, "externalId")
	}
	return out
}

// userFilter selects users by the attributes of a filter.
func userFilter(text string) (p dbsqlc.ListScimUsersParams, err error) {
	terms, err := parseFilter(text)
	for _, t := range terms {
		switch t.attribute {
		case "id":
			p.ID = &t.value
		case "username":
			p.UserName = &t.value
		case "externalid":
			p.ExternalID = &t.value
		case "displayname", "name.formatted":
			p.DisplayName = &t.value
		case "emails", "emails.value":
			p.Email = &t.value
		case "active":
			active := strings.EqualFold(t.value, "true")
			p.Active = &active
		case "meta.resourcetype", "schemas":
		default:
			return p, invalid("invalidFilter", "Users cannot be filtered by "+t.attribute+".")
		}
	}
	return p, err
}

func (s *Service) listUsers(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	p, err := userFilter(values.Get("filter"))
	if err != nil {
		return err
	}
	part, err := pageOf(values)
	if err != nil {
		return err
	}
	total, err := s.opts.DB.CountScimUsers(r.Context(), dbsqlc.CountScimUsersParams{
		ID: p.ID, UserName: p.UserName, Email: p.Email, ExternalID: p.ExternalID, DisplayName: p.DisplayName,
		Active: p.Active,
	})
	if err != nil {
		return fmt.Errorf("count users: %w", err)
	}
	p.PageLimit, p.PageOffset = part.limit(), part.offset()
	found, err := s.users(r.Context(), p)
	if err != nil {
		return err
	}
	out := []object{}
	for _, u := range found {
		out = append(out, s.show(u))
	}
	return list(w, part, total, out)
}

// users returns users with their groups.
func (s *Service) users(ctx context.Context, p dbsqlc.ListScimUsersParams) ([]user, error) {
	rows, err := s.opts.DB.ListScimUsers(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	ids := []uuid.UUID{}
	for _, row := range rows {
		ids = append(ids, row.User.ID)
	}
	groups, err := s.opts.DB.ListScimGroupsOf(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list groups of users: %w", err)
	}
	of := map[uuid.UUID][]object{}
	for _, g := range groups {
		of[g.UserID] = append(of[g.UserID], object{
			"value": g.ID.String(), "display": g.DisplayName, "$ref": s.location("Groups", g.ID.String()),
		})
	}
	var out []user
	for _, row := range rows {
		out = append(out, user{row.User, row.UserName, row.ExternalID, row.GivenName, row.FamilyName, of[row.User.ID]})
	}
	return out, nil
}

// answer writes a user as it is now.
func (s *Service) answer(ctx context.Context, w http.ResponseWriter, status int, id uuid.UUID) error {
	text := id.String()
	found, err := s.users(ctx, dbsqlc.ListScimUsersParams{ID: &text, PageLimit: 1})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return notFound("user", text)
	}
	if status == http.StatusCreated {
		w.Header().Set("Location", s.location("Users", text))
	}
	return write(w, status, s.show(found[0]))
}

func (s *Service) getUser(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "user")
	if err != nil {
		return err
	}
	return s.answer(r.Context(), w, http.StatusOK, id)
}

// fullName returns the name of a user, as far as a request gives one.
func (c userChange) fullName() *string {
	for _, name := range []*string{c.displayName, c.formatted} {
		if name != nil && strings.TrimSpace(*name) != "" {
			return name
		}
	}
	if c.given == nil && c.family == nil {
		return c.displayName
	}
	name := strings.TrimSpace(value(c.given) + " " + value(c.family))
	return &name
}

func value(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func (s *Service) createUser(w http.ResponseWriter, r *http.Request) error {
	data, err := read(w, r)
	if err != nil {
		return err
	}
	c, err := wholeUser(data)
	if err != nil {
		return err
	}
	address := strings.TrimSpace(value(or(c.email, c.userName)))
	if !strings.Contains(address, "@") {
		return invalid("invalidValue", "emails is required, because userName is not an email address.")
	}
	ctx := r.Context()
	var id uuid.UUID
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		account, err := s.account(ctx, q, address, c)
		if err != nil {
			return err
		}
		id = account.ID
		if err := s.describe(ctx, q, user{User: account}, c); err != nil {
			return err
		}
		if c.active != nil && !*c.active {
			if _, err := s.opts.Accounts.Suspend(ctx, q, account); err != nil {
				return err
			}
		}
		return recordUser(ctx, q, dbsqlc.User{}, id)
	})
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "user provisioned", "user", id)
	return s.answer(ctx, w, http.StatusCreated, id)
}

// account creates the account of a new user, or revives the one that the provider removed.
func (s *Service) account(ctx context.Context, q *dbsqlc.Queries, address string, c userChange) (dbsqlc.User, error) {
	before, err := q.GetUserByEmail(ctx, address)
	if database.IsNotFound(err) {
		return s.opts.Accounts.CreateFrom(ctx, q, users.Account{
			LoginType: sdk.LoginOIDC, Email: address, Username: strings.TrimSpace(*c.userName),
			Name: value(c.fullName()),
		})
	}
	if err != nil {
		return before, fmt.Errorf("look up address: %w", err)
	}
	removed, err := q.IsRemovedScimUser(ctx, before.ID)
	switch {
	case err != nil:
		return before, fmt.Errorf("look up user: %w", err)
	case !removed || before.LoginType != string(sdk.LoginOIDC):
		return before, taken(before)
	}
	return s.opts.Accounts.Activate(ctx, q, before)
}

// taken returns the problem with an address that another account has.
func taken(before dbsqlc.User) error {
	detail := "A user with this email address exists already."
	if before.LoginType != string(sdk.LoginOIDC) {
		detail = fmt.Sprintf("The account %s has this email address and signs in in another way (%s). Convert it to OpenID Connect first.", before.Username, before.LoginType)
	}
	return problem{http.StatusConflict, "uniqueness", detail}
}

// describe stores what the provider calls a user. Nil fields of the change keep what u has.
func (s *Service) describe(ctx context.Context, q *dbsqlc.Queries, u user, c userChange) error {
	name := strings.TrimSpace(value(or(c.userName, &u.userName)))
	p := dbsqlc.UpsertScimUserParams{
		UserID: u.ID, UserName: name, ExternalID: value(or(c.externalID, &u.externalID)),
		GivenName: value(or(c.given, &u.given)), FamilyName: value(or(c.family, &u.family)),
	}
	if name == "" || len(name) > 320 || len(p.ExternalID) > maxExternalID || len(p.GivenName) > 255 ||
		len(p.FamilyName) > 255 {
		return invalid("invalidValue", "userName, externalId and names must be shorter, and userName cannot be empty.")
	}
	if strings.ContainsFunc(name+p.ExternalID+p.GivenName+p.FamilyName, httpapi.Hidden) {
		return invalid("invalidValue", "userName, externalId and names must consist of visible characters.")
	}
	if err := q.FreeScimUserName(ctx, name); err != nil {
		return fmt.Errorf("free name: %w", err)
	}
	err := q.UpsertScimUser(ctx, p)
	if database.IsUniqueViolation(err, "scim_users_name") {
		return problem{http.StatusConflict, "uniqueness", "Another user has this userName."}
	}
	if err != nil {
		return fmt.Errorf("store user: %w", err)
	}
	return nil
}

// changeUser serves PUT and PATCH, whose bodies parse reads.
func (s *Service) changeUser(parse func([]byte) (userChange, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := pathID(r, "user")
		if err != nil {
			return err
		}
		data, err := read(w, r)
		if err != nil {
			return err
		}
		c, err := parse(data)
		if err != nil {
			return err
		}
		ctx := r.Context()
		err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error { return s.change(ctx, q, id, c) })
		if err != nil {
			return err
		}
		return s.answer(ctx, w, http.StatusOK, id)
	}
}

func (s *Service) change(ctx context.Context, q *dbsqlc.Queries, id uuid.UUID, c userChange) error {
	row, err := q.LockScimUser(ctx, id)
	if database.IsNotFound(err) {
		return notFound("user", id.String())
	}
	if err != nil {
		return fmt.Errorf("lock user: %w", err)
	}
	u := user{
		User: row.User, userName: row.UserName, externalID: row.ExternalID, given: row.GivenName,
		family: row.FamilyName,
	}
	if err := s.describe(ctx, q, u, c); err != nil {
		return err
	}
	// A change of one part of the name keeps the other.
	if c.given != nil || c.family != nil {
		c.given, c.family = or(c.given, &u.given), or(c.family, &u.family)
	}
	address, name := strings.TrimSpace(value(or(c.email, &u.Email))), strings.TrimSpace(value(or(c.fullName(),
		&u.Name)))
	if c.email == nil && c.userName != nil && strings.EqualFold(u.userName, u.Email) &&
		strings.Contains(*c.userName, "@") {
		address = strings.TrimSpace(*c.userName) // the name is the address, and was changed
	}
	if address != u.Email || name != u.Name {
		if problem := users.CheckProfile(address, name); problem != "" {
			return invalid("invalidValue", problem)
		}
		before, err := q.GetUserByEmail(ctx, address)
		if err == nil && before.ID != id {
			return taken(before)
		}
		if err != nil && !database.IsNotFound(err) {
			return fmt.Errorf("look up address: %w", err)
		}
		_, err = q.UpdateScimProfile(ctx, dbsqlc.UpdateScimProfileParams{ID: id, Email: address, Name: name})
		if database.IsUniqueViolation(err, "users_email") {
			return problem{http.StatusConflict, "uniqueness", "A user with this email address exists already."}
		}
		if err != nil {
			return fmt.Errorf("store user: %w", err)
		}
	}
	suspended := u.Status == string(sdk.UserSuspended)
	switch {
	case c.active == nil || *c.active != suspended:
	case *c.active:
		_, err = s.opts.Accounts.Activate(ctx, q, u.User)
	default:
		_, err = s.opts.Accounts.Suspend(ctx, q, u.User)
	}
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "provisioned user changed", "user", id)
	return recordUser(ctx, q, u.User, id)
}

// deleteUser suspends a user, who is no longer the provider's: their workspaces stay until an administrator deletes the
// account.
func (s *Service) deleteUser(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "user")
	if err != nil {
		return err
	}
	ctx := r.Context()
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		row, err := q.LockScimUser(ctx, id)
		if database.IsNotFound(err) {
			return notFound("user", id.String())
		}
		if err != nil {
			return fmt.Errorf("lock user: %w", err)
		}
		if row.User.Status != string(sdk.UserSuspended) {
			if _, err := s.opts.Accounts.Suspend(ctx, q, row.User); err != nil {
				return err
			}
		}
		if err := q.RemoveScimUser(ctx, id); err != nil {
			return fmt.Errorf("remove user: %w", err)
		}
		return recordUser(ctx, q, row.User, id)
	})
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "provisioned user removed", "user", id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
