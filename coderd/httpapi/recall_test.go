package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/credential"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// outage is a mux whose database can go away, with a route about the server and another one.
type outage struct {
	t        *testing.T
	mux      *httpapi.Mux
	sessions *httpapi.Sessions
	users    map[string]rbac.Actor // by token
	err      error                 // of the database
	silent   bool                  // it does not answer
	during   func()                // called while a token is checked
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{t: t, users: map[string]rbac.Actor{}, during: func() {}}
	o.sessions = httpapi.NewSessions(slog.New(slog.DiscardHandler), func(context.Context, string, uuid.UUID) (rbac.Actor, error) {
		return rbac.Actor{}, o.err
	})
	o.mux = httpapi.NewMux(httpapi.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Authenticate: o.authenticate, Sessions: o.sessions, RequestsPerMinute: 1000})
	ok := func(w http.ResponseWriter, r *http.Request) error {
		return httpapi.Write(w, http.StatusOK, httpapi.ActorFrom(r.Context()).Username)
	}
	o.mux.Handle("GET /api/v2/health", rbac.Needs(rbac.Read, rbac.Deployment), ok, httpapi.DuringOutage())
	o.mux.Handle("GET /api/v2/deployment", rbac.Needs(rbac.Read, rbac.Deployment), ok)
	return o
}

func (o *outage) authenticate(r *http.Request) (rbac.Actor, error) {
	token, _ := credential.Of(r)
	if o.silent {
		<-r.Context().Done()
		return rbac.Actor{}, r.Context().Err()
	}
	actor, ok := o.users[token.Reveal()]
	o.during()
	if o.err != nil {
		return rbac.Actor{}, fmt.Errorf("look up session: %w", o.err)
	}
	if !ok {
		return rbac.Actor{}, fault.New(fault.Unauthenticated, "The session has ended.")
	}
	return actor, nil
}

// user adds a user with one token.
func (o *outage) user(token string, roles ...string) uuid.UUID {
	id := uuid.New()
	o.users[token] = rbac.Actor{UserID: id, Username: token, Roles: roles, KeyID: "key " + token}
	return id
}

func (o *outage) away() {
	o.err = &fault.Error{Code: fault.Unavailable, Message: "The database is not reachable.", Reason: fault.DatabaseUnreachable}
}

// get checks the status of an answer to a token.
func (o *outage) get(path, token string, want int) {
	o.t.Helper()
	w := do(o.mux, "GET", "/api/v2/"+path, func(r *http.Request) { r.Header.Set("Coder-Session-Token", token) })
	if w.Code != want {
		o.t.Errorf("%s for %q: got %d %s, want %d", path, token, w.Code, w.Body, want)
	}
	if body := w.Body.String(); w.Code == http.StatusServiceUnavailable {
		if got := decode(o.t, w); got.Reason != fault.DatabaseUnreachable || !got.Unchanged {
			o.t.Errorf("%s for %q: got %s, want the reason, and that nothing has changed", path, token, body)
		}
	}
}

// TestDuringOutage attacks the routes that are answered while the database is away: only tokens that this server has lately seen to be allowed
// get an answer, and only from these routes.
func TestDuringOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		for _, token := range []string{"owner", "unused", "revoked", "unnoticed", "elsewhere"} {
			o.user(token, rbac.RoleOwner)
		}
		o.user("member")
		for token, want := range map[string]int{"owner": 200, "elsewhere": 200, "revoked": 200, "unnoticed": 200, "member": 403, "forged": 401} {
			o.get("health", token, want)
		}
		o.get("deployment", "elsewhere", 200)
		// One was revoked, and this server has learnt of it: from the database, or from the token's next use.
		gone := o.users["revoked"].UserID
		delete(o.users, "revoked")
		if err := o.sessions.Recheck(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		delete(o.users, "unnoticed")
		o.get("deployment", "unnoticed", 401)

		o.away()
		for token, want := range map[string]int{"owner": 200, "elsewhere": 200, "revoked": 503, "unnoticed": 503, "unused": 503, "member": 503, "forged": 503, "": 503} {
			o.get("health", token, want)
			o.get("deployment", token, 503)
		}
		time.Sleep(15*time.Minute - time.Second)
		o.get("health", "owner", 200)
		time.Sleep(time.Second)
		o.get("health", "owner", 503) // an answer from memory does not renew it
		o.err = nil
		o.get("health", "owner", 200)
		if err := o.sessions.Recheck(t.Context(), uuid.Nil); err != nil { // announcements may have been missed
			t.Fatal(err)
		}
		o.away()
		o.get("health", "owner", 503)
	})
}

// TestRecallRaces checks that a revocation counts that comes while the token is being checked.
func TestRecallRaces(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	id := o.user("owner", rbac.RoleOwner)
	revoke := func() {
		if err := o.sessions.Recheck(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	o.during = revoke
	do(o.mux, "GET", "/api/v2/health", func(r *http.Request) { r.Header.Set("Coder-Session-Token", "owner") })
	o.during = func() {}
	o.away()
	o.get("health", "owner", 503)
	o.err = nil
	o.get("health", "owner", 200)
	o.away()
	o.during = revoke
	o.get("health", "owner", 503)
}

// TestRecallIsBounded checks that a server remembers a bounded number of tokens, and which.
func TestRecallIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		for n := range 257 {
			token := fmt.Sprint("owner", n)
			o.user(token, rbac.RoleOwner)
			o.get("health", token, 200)
			time.Sleep(time.Second)
			o.get("health", "owner1", map[bool]int{true: 200, false: 401}[n >= 1])
			time.Sleep(time.Second)
		}
		o.away()
		for token, want := range map[string]int{"owner0": 503, "owner1": 200, "owner2": 200, "owner256": 200} {
			o.get("health", token, want)
		}
	})
}

// TestSilentDatabase checks that an answer from memory does not wait for as long as the database is silent.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		o.user("owner", rbac.RoleOwner)
		o.get("health", "owner", 200)
		o.silent = true
		begin := time.Now()
		o.get("health", "owner", 200)
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestOutageIsNotCounted checks that those who wait for the database behind one address do not use up its limit on requests.
func TestOutageIsNotCounted(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	o.away()
	for range 2000 {
		o.get("deployment", "waiting", 503)
	}
	o.err = nil
	o.get("deployment", "waiting", 401)
}
