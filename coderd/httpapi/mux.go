// Package httpapi owns the conventions of the HTTP API: routes that each declare a permission, authentication, JSON in
// and out, errors, limits, request ids and protection against cross-site requests. It knows neither the database nor
// any feature.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/credential"
	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tracing"
)

// HandlerFunc answers a request. An error that it returns is written as the answer, so it must not have written one
// itself. A fault is written as it is; any other error as an internal error whose text appears only in the log.
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// Serve returns a HandlerFunc for a handler that writes its own errors.
func Serve(h http.Handler) HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		h.ServeHTTP(w, r)
		return nil
	}
}

// Options configures a Mux.
type Options struct {
	Logger *slog.Logger
	// Authenticate returns the sender of a request, by the token that credential.Of finds. It returns the fault
	// Unauthenticated if there is no valid token. If Authenticate is nil, no request is ever signed in.
	Authenticate func(*http.Request) (rbac.Actor, error)
	// Sessions ends requests whose session ends while they are being served. If nil, such requests continue.
	Sessions *Sessions
	// AccessURL is the address that users' browsers know; pages from its origin may use the API. If nil, only the same
	// origin may.
	AccessURL *url.URL
	// Metrics receives the counts of requests. Nil means that they are not registered.
	Metrics prometheus.Registerer
	// Tracer records requests of the API, except websockets. Nil records nothing. A client's own trace is not
	// continued: it would decide what is recorded.
	Tracer trace.TracerProvider
	// Record writes to the audit log what handlers did not. If nil, the mux does not watch over the log.
	Record Recorder
	// StrictAudit fails requests that changed something without a row in the audit log. It is for tests: a server
	// records and counts them.
	StrictAudit bool
	// Keys looks up keys of requests that create something. If nil, keys have no effect.
	Keys Keys
	// Absent says why the API has no route below a path, or returns nil where the client may be newer than the server.
	// If nil, it always may.
	Absent func(path string) *fault.Error
	// RequestsPerMinute limits the requests to the API of each user and, without a session, of each address. Zero means
	// no limit.
	RequestsPerMinute int
}

// Route is one pattern that the mux serves.
type Route struct {
	Pattern    string // "GET /api/v2/users/{user}"
	Permission rbac.Permission
	Audit      Audit
	Uncounted  string // why the limit on requests does not apply, if so
	// DuringOutage says that the route is answered while the database is away.
	DuringOutage bool
	// Creation says how a request that is repeated is answered. The zero value: like any other request.
	Creation Creation
}

// Mux routes requests. Register everything before the first request; serving is safe for concurrent use.
type Mux struct {
	log          *slog.Logger
	authenticate func(*http.Request) (rbac.Actor, error)
	sessions     *Sessions
	crossOrigin  *http.CrossOriginProtection
	metrics      *metrics
	tracer       trace.Tracer
	record       Recorder
	strictAudit  bool
	limits       *limits
	absent       func(path string) *fault.Error
	keys         Keys
	mux          *http.ServeMux
	routes       []Route
	duringOutage []rbac.Permission // of the routes that are answered during an outage
}

// NewMux returns a mux without routes. It panics if the access URL is invalid.
func NewMux(opts Options) *Mux {
	m := &Mux{
		log:          opts.Logger,
		authenticate: opts.Authenticate,
		sessions:     opts.Sessions,
		crossOrigin:  http.NewCrossOriginProtection(),
		metrics:      newMetrics(opts.Metrics),
		tracer:       tracing.Tracer(opts.Tracer),
		record:       opts.Record,
		strictAudit:  opts.StrictAudit,
		limits:       newLimits(opts.RequestsPerMinute),
		absent:       opts.Absent,
		keys:         opts.Keys,
		mux:          http.NewServeMux(),
	}
	if m.authenticate == nil {
		m.authenticate = func(*http.Request) (rbac.Actor, error) { return rbac.Actor{}, nil }
	}
	if opts.AccessURL != nil {
		if err := m.crossOrigin.AddTrustedOrigin(opts.AccessURL.Scheme + "://" + opts.AccessURL.Host); err != nil {
			panic(fmt.Sprintf("httpapi: access URL %s: %v", opts.AccessURL.Redacted(), err))
		}
	}
	return m
}

// Handle registers a handler for a net/http pattern. A mutating route must also declare what it leaves in the audit
// log, with audit.On or audit.Exempt. Handle panics if no permission is declared or the pattern is already registered.
func (m *Mux) Handle(pattern string, perm rbac.Permission, h HandlerFunc, opts ...RouteOption) {
	if !perm.Declared() {
		panic("httpapi: route " + pattern + " declares no permission")
	}
	route := Route{Pattern: pattern, Permission: perm}
	for _, opt := range opts {
		opt(&route)
	}
	m.routes = append(m.routes, route)
	if route.DuringOutage && !slices.Contains(m.duringOutage, perm) {
		m.duringOutage = append(m.duringOutage, perm)
	}
	if route.Mutates() && !route.Audit.Declared() {
		route.Audit = guess(route)
	}
	m.mux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if trail := TrailOf(r.Context()); trail != nil {
			trail.route = route
		}
		res, ok := w.(*response)
		if ok {
			m.watch(res, r, route)
		}
		err := m.serve(w, r, route, h)
		if ok && err == nil && !res.started() {
			w.WriteHeader(http.StatusOK) // what net/http would do
		}
		m.fail(w, r, err)
	}))
}

// Routes returns the registered routes in the order of registration.
func (m *Mux) Routes() []Route { return slices.Clone(m.routes) }

func (m *Mux) serve(w http.ResponseWriter, r *http.Request, route Route, h HandlerFunc) error {
	perm := route.Permission
	if perm.IsPublic() {
		if err := m.checkOrigin(r); err != nil {
			return err
		}
		if err := m.limits.take(w, route, network(ClientAddr(r.Context()))); err != nil {
			return err
		}
		return h(w, r)
	}
	// A page of another site cannot make a request that names its token explicitly, because the page does not know the
	// visitor's token. On a public route any token can be named, so there it proves nothing.
	if token, fromCookie := credential.Of(r); token == "" || fromCookie {
		if err := m.checkOrigin(r); err != nil {
			return err
		}
	}
	generation := m.sessions.now()
	actor, err := m.signIn(r, route, generation)
	if databaseAway(err) {
		return err // not counted: those who wait for the database behind one address must not use up its limit
	}
	if err != nil {
		return cmp.Or(m.limits.take(w, route, network(ClientAddr(r.Context()))), err)
	}
	if err := m.limits.take(w, route, caller{user: actor.UserID}); err != nil {
		return err
	}
	if err := perm.Check(actor); err != nil {
		m.refused(r.WithContext(context.WithValue(r.Context(), actorKey{}, actor)), route, err)
		return err
	}
	if actor.Scope.Limited() && !perm.Names(r.Method) {
		return fault.New(fault.Forbidden, "A token with limited scopes cannot do this.").
			WithDetail("Sign in with: coder login <url>")
	}
	res, _ := w.(*response)
	ctx, leave, err := m.sessions.enter(context.WithValue(r.Context(), actorKey{}, actor), res, generation, actor, perm)
	if err != nil {
		return err
	}
	defer leave()
	r = r.WithContext(ctx)
	err = m.create(w, r, route, h)
	m.refused(r, route, err)
	if ended := SessionEnded(ctx); err != nil && ended != nil && fault.As(err) == nil {
		return ended
	}
	return err
}

// checkOrigin refuses requests that another site's page makes a browser send: they carry the session's cookie without
// the user's knowledge, or sign the user in to another account. Opening a websocket counts as writing.
func (m *Mux) checkOrigin(r *http.Request) error {
	checked := r
	if r.Header.Get("Upgrade") != "" {
		checked = &http.Request{Method: http.MethodPost, URL: r.URL, Header: r.Header, Host: r.Host}
	}
	if err := m.crossOrigin.Check(checked); err != nil {
		return fault.New(fault.Forbidden, "This request comes from a page of another site.").
			WithDetail("Open the dashboard at the server's access URL, or set --access-url to the address that you use.")
	}
	return nil
}

// ServeHTTP answers one request.
func (m *Mux) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	start := time.Now()
	r = slashless(r)
	req := &request{id: uuid.NewString(), addr: clientaddr.Of(r), userAgent: r.UserAgent()}
	w := &response{ResponseWriter: rw}
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, req))
	w.Header().Set("X-Coder-Build-Version", buildinfo.Version())
	w.Header().Set("X-Coder-Request-Id", req.id)
	secure(w.Header())
	if m.keys != nil {
		w.Header().Set(sdk.KeysHeader, "true")
	}
	_, pattern := m.mux.Handler(r)
	unmatched := strings.HasPrefix(r.URL.Path, "/api/") && !strings.Contains(pattern, "/api/")
	if unmatched {
		pattern = ""
	}
	end := m.metrics.begin(r, pattern)
	r, endSpan := m.span(r, pattern, req.id)
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			m.log.Error("handler panicked", "request", req.id, "method", r.Method, "path", r.URL.Path, "err", p,
				"stack", string(debug.Stack()))
			if w.begins = nil; !w.started() {
				writeError(w, internal(req.id))
			}
		}
		end(w)
		endSpan(w.code())
		m.log.Debug("request", "request", req.id, "method", r.Method, "path", r.URL.Path, "status", w.status,
			"bytes", w.bytes, "addr", req.addr, "duration", time.Since(start))
	}()
	if f := checkAddress(r.URL); f != nil {
		writeError(w, f)
		return
	}
	if unmatched {
		writeError(w, m.noRoute(w, r))
		return
	}
	m.mux.ServeHTTP(w, r)
}

// span begins to record a request of the API, unless it becomes a websocket. The returned function records its status.
func (m *Mux) span(r *http.Request, pattern, id string) (*http.Request, func(status int)) {
	if !strings.Contains(pattern, "/api/") || r.Header.Get("Upgrade") != "" {
		return r, func(int) {}
	}
	method, route, _ := strings.Cut(pattern, " ")
	ctx, span := m.tracer.Start(r.Context(), pattern, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", method), attribute.String("http.route",
			route), attribute.String("codermesh.request", id)))
	return r.WithContext(ctx), func(status int) {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		tracing.End(span, status >= http.StatusInternalServerError)
	}
}

// noRoute returns the reason why no route of the API serves the request. If the path has routes for other methods, it
// names them in the header Allow.
func (m *Mux) noRoute(w http.ResponseWriter, r *http.Request) *fault.Error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := m.mux.Handler(other); method != r.Method && strings.Contains(pattern, "/api/") {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		list := strings.Join(allowed, ", ")
		w.Header().Set("Allow", list)
		return fault.New(fault.WrongMethod, "%s does not support %s, only %s.", r.URL.Path, r.Method, list)
	}
	if m.absent != nil {
		if why := m.absent(r.URL.Path); why != nil {
			return why
		}
	}
	return fault.New(fault.NotFound, "%s does not exist on this server.", r.URL.Path).
		WithDetail("The client may be newer than the server (%s).", buildinfo.Version())
}

// fail writes err as the answer, unless it is nil.
func (m *Mux) fail(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	id := RequestID(r.Context())
	if res, ok := w.(*response); ok && res.started() {
		if r.Context().Err() == nil {
			m.log.Warn("response cut short", "request", id, "method", r.Method, "path", r.URL.Path, "err", err)
		}
		return
	}
	err = disk.Explain(err, "The server's disk")
	f := fault.As(err)
	switch {
	case f == nil && r.Context().Err() != nil: // the client has disconnected, so its work was canceled
		m.log.Debug("request canceled", "request", id, "method", r.Method, "path", r.URL.Path, "err", err)
		f = fault.New(fault.Unavailable, "The request was canceled.")
	case f == nil || f.Code == fault.Internal:
		m.log.Error("request", "request", id, "method", r.Method, "path", r.URL.Path, "err", err)
		f = internal(id)
	case f.Code == fault.Unavailable && f.Cause == nil: // such as an agent that waits for its workspace's start
		m.log.Debug("request", "request", id, "method", r.Method, "path", r.URL.Path, "err", err)
	case f.Code == fault.Unavailable:
		m.log.Warn("request", "request", id, "method", r.Method, "path", r.URL.Path, "err", f.Cause)
	}
	writeError(w, f)
}

func internal(id string) *fault.Error {
	return fault.New(fault.Internal, "The server could not handle this request.").
		WithDetail("Its log has the cause under request %s.", id)
}
