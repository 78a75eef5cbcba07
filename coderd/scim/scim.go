// Package scim serves SCIM 2.0 (RFC 7643 and 7644), with which an identity provider creates, changes and deactivates
// users and groups. It owns what the provider says of them beyond the account: its own name and id for each. It has a
// bearer token of its own and no user: its requests do not carry an rbac.Actor.
//
// The provider sees the users that it provisioned and those that sign in with OpenID Connect, and the groups that it
// made. It never grants a role, and an account with another way to sign in is a conflict, so that no account is taken
// over silently. It knows neither templates nor workspaces.
package scim

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	root         = "/scim/v2"
	contentType  = "application/scim+json; charset=utf-8"
	defaultCount = 100 // resources of a page
	maxCount     = 200
)

// MinToken is the least length of the token, in bytes.
const MinToken = 16

// Accounts are the operations on accounts, in a transaction of the caller.
type Accounts interface {
	// CreateFrom stores an active account without roles.
	CreateFrom(ctx context.Context, q *dbsqlc.Queries, a users.Account) (dbsqlc.User, error)
	// Suspend and Activate change an account's status. Suspend ends its sessions, and refuses for the last owner.
	Suspend(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User) (dbsqlc.User, error)
	Activate(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User) (dbsqlc.User, error)
}

// Options configure the service.
type Options struct {
	DB        *database.DB
	Logger    *slog.Logger
	Accounts  Accounts
	AccessURL *url.URL
	// Token is what the provider sends in the header Authorization. Empty means that there is no SCIM.
	Token secret.Token
}

// Service serves SCIM. Safe for concurrent use.
type Service struct {
	opts Options
	log  *slog.Logger
}

// New returns the service.
func New(opts Options) *Service { return &Service{opts: opts, log: opts.Logger} }

// Routes registers the routes. They are public for the mux, which knows users only: handle checks the provider's token.
func (s *Service) Routes(mux *httpapi.Mux) {
	get := func(path string, h httpapi.HandlerFunc) { mux.Handle("GET "+root+path, rbac.Public, s.handle(h)) }
	do := func(pattern string, h httpapi.HandlerFunc, action audit.Action, kind audit.Kind) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.Handle(method+" "+root+path, rbac.Public, s.handle(h), audit.On(action, kind))
	}
	get("/ServiceProviderConfig", s.serviceProviderConfig)
	get("/ResourceTypes", s.resourceTypes)
	get("/ResourceTypes/{id}", s.resourceType)
	get("/Schemas", s.schemas)
	get("/Schemas/{id}", s.schema)
	get("/Users", s.listUsers)
	get("/Users/{id}", s.getUser)
	do("POST /Users", s.createUser, audit.Create, audit.User)
	do("PUT /Users/{id}", s.changeUser(wholeUser), audit.Write, audit.User)
	do("PATCH /Users/{id}", s.changeUser(patchUser), audit.Write, audit.User)
	do("DELETE /Users/{id}", s.deleteUser, audit.Write, audit.User) // suspends
	get("/Groups", s.listGroups)
	get("/Groups/{id}", s.getGroup)
	do("POST /Groups", s.createGroup, audit.Create, audit.Group)
	do("PUT /Groups/{id}", s.changeGroup(wholeGroup, true), audit.Write, audit.Group)
	do("PATCH /Groups/{id}", s.changeGroup(patchGroup, false), audit.Write, audit.Group)
	do("DELETE /Groups/{id}", s.deleteGroup, audit.Delete, audit.Group)
	mux.Handle("/scim/", rbac.Public, s.handle(func(http.ResponseWriter, *http.Request) error {
		return problem{http.StatusNotFound, "", "SCIM has no such resource, or not this method."}
	}))
}

// actor is who the audit log says has acted.
const actor = "SCIM"

// recordUser writes what became of a user to the audit log. The zero value stands for a user that does not exist.
func recordUser(ctx context.Context, q *dbsqlc.Queries, before dbsqlc.User, id uuid.UUID) error {
	after, err := q.GetUser(ctx, id)
	if err != nil {
		return fmt.Errorf("read user: %w", err)
	}
	e := audit.OfUser(before, after)
	e.By = actor
	return audit.Record(ctx, q, e)
}

// problem is an error as SCIM answers it.
type problem struct {
	status       int
	kind, detail string // kind is a scimType, or ""
}

func (p problem) Error() string { return p.detail }

func invalid(kind, detail string) error { return problem{http.StatusBadRequest, kind, detail} }

func notFound(what, id string) error {
	return problem{http.StatusNotFound, "", fmt.Sprintf("There is no %s %q.", what, id)}
}

// problemOf converts an error, or returns ok = false for one that is internal.
func problemOf(err error) (p problem, ok bool) {
	if errors.As(err, &p) {
		return p, true
	}
	f := fault.As(err)
	if f == nil || f.Code == fault.Internal {
		return p, false
	}
	p = problem{status: f.Code.HTTPStatus(), detail: f.Error()}
	for _, field := range f.Fields {
		p.detail += " " + field.Field + " " + field.Detail + "."
	}
	switch f.Code {
	case fault.Invalid:
		p.kind = "invalidValue"
	case fault.Conflict:
		p.kind = "uniqueness"
	}
	return p, true
}

// handle checks the token and answers errors in SCIM's form.
func (s *Service) handle(h httpapi.HandlerFunc) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		err := s.authenticate(r)
		if err == nil {
			err = h(w, r)
		}
		if err == nil {
			return nil
		}
		p, ok := problemOf(err)
		if !ok {
			s.log.ErrorContext(r.Context(), "SCIM request failed", "request", httpapi.RequestID(r.Context()), "method",
				r.Method, "path", r.URL.Path, "err", err)
			p = problem{http.StatusInternalServerError, "", "The server could not handle this request. Its log has the cause under request " + httpapi.RequestID(r.Context()) + "."}
		}
		if p.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="SCIM"`)
		}
		return write(w, p.status, map[string]any{
			"schemas": []string{
				"urn:ietf:params:scim:api:messages:2.0:Error",
			}, "status": strconv.Itoa(p.status), "scimType": omit(p.kind), "detail": p.detail,
		})
	}
}

// omit returns nil for "", which write leaves out of objects.
func omit(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// authenticate compares the request's token with the configured one, in constant time. Some providers send the token
// alone, without the word Bearer.
func (s *Service) authenticate(r *http.Request) error {
	if s.opts.Token == "" {
		return problem{http.StatusNotFound, "", "This server has no SCIM. Its operator sets a token with --scim-auth-header."}
	}
	text := r.Header.Get("Authorization")
	if scheme, rest, ok := strings.Cut(text, " "); ok && strings.EqualFold(scheme, "Bearer") {
		text = rest
	}
	got, want := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(s.opts.Token.Reveal()))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return problem{http.StatusUnauthorized, "", "The bearer token is missing or wrong."}
	}
	return nil
}

func write(w http.ResponseWriter, status int, body map[string]any) error {
	for name, value := range body {
		if value == nil {
			delete(body, name)
		}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, err = w.Write(data)
	return err
}

// read returns a request's body.
func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var body json.RawMessage
	if err := httpapi.Read(w, r, &body); err != nil {
		return nil, err
	}
	return body, nil
}

// page is the part of a list that a request asks for.
type page struct{ start, count int } // start counts from 1

func pageOf(query url.Values) (page, error) {
	p := page{1, defaultCount}
	for name, to := range map[string]*int{"startIndex": &p.start, "count": &p.count} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n > 1<<30 {
			return p, invalid("invalidValue", name+" must be a number.")
		}
		*to = n
	}
	p.start, p.count = max(p.start, 1), min(max(p.count, 0), maxCount) // RFC 7644, section 3.4.2.4
	return p, nil
}

func (p page) limit() int32  { return int32(p.count) }
func (p page) offset() int32 { return int32(p.start - 1) }

// list answers with a page of resources.
func list(w http.ResponseWriter, p page, total int64, resources []map[string]any) error {
	if resources == nil {
		resources = []map[string]any{}
	}
	return write(w, http.StatusOK, map[string]any{
		"schemas":      []string{"urn:ietf:params:scim:api:messages:2.0:ListResponse"},
		"totalResults": total, "startIndex": p.start, "itemsPerPage": len(resources), "Resources": resources,
	})
}

// query parses a request's query; the mux does so only for the API's own routes.
func query(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("invalidSyntax", "The query cannot be read.")
	}
	for _, list := range values {
		for _, value := range list {
			if strings.ContainsRune(value, 0) || strings.ToValidUTF8(value, "") != value {
				return nil, invalid("invalidSyntax", "The query is not text.")
			}
		}
	}
	return values, nil
}

// location returns the address of a resource.
func (s *Service) location(parts ...string) string {
	return s.opts.AccessURL.JoinPath(append([]string{root}, parts...)...).String()
}

// pathID returns the id in the path.
func pathID(r *http.Request, what string) (uuid.UUID, error) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		return id, notFound(what, r.PathValue("id"))
	}
	return id, nil
}
