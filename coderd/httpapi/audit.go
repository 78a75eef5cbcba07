package httpapi

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Audit declares what a route leaves in the audit log. The zero value declares nothing, which a mutating route must
// not.
type Audit struct {
	Action, Kind string // what the route does to what kind of object
	Exempt       string // the reason why the route leaves nothing
}

// Declared reports whether the audit is not the zero value.
func (a Audit) Declared() bool { return a != Audit{} }

// RouteOption declares more about a route than its permission.
type RouteOption func(*Route)

// WithAudit declares what the route leaves in the audit log. Use audit.On and audit.Exempt.
func WithAudit(a Audit) RouteOption { return func(r *Route) { r.Audit = a } }

// Mutates reports whether the route's method changes something: POST, PUT, PATCH or DELETE.
func (r Route) Mutates() bool {
	method, _, _ := strings.Cut(r.Pattern, " ")
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch ||
		method == http.MethodDelete
}

// Gap is a request that must be in the audit log and that no handler recorded: one that was refused, or one whose
// handler forgot to. Action, Kind and Target say what is known of it.
type Gap struct {
	Action, Kind string
	Target       string // the last wildcard of the path
	Status       int
}

// Recorder writes a Gap to the audit log.
type Recorder func(context.Context, Gap) error

// Trail connects a request to its rows in the audit log.
type Trail struct {
	route Route
	rows  atomic.Int32
}

// TrailOf returns the trail of the request with this context, or nil outside a Mux.
func TrailOf(ctx context.Context) *Trail {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return &r.trail
	}
	return nil
}

// Declared returns what the request's route declares.
func (t *Trail) Declared() Audit { return t.route.Audit }

// Recorded notes that a row was written. A transaction that is repeated notes it again.
func (t *Trail) Recorded() { t.rows.Add(1) }

// Rows returns how many rows were noted. It tells a caller whether a function that it called has recorded its change.
func (t *Trail) Rows() int { return int(t.rows.Load()) }

// watch completes the audit log when the request's answer begins: a handler must have recorded what it changed. With
// StrictAudit it panics if one has not; otherwise it records what is known, without the difference.
func (m *Mux) watch(w *response, r *http.Request, route Route) {
	if !route.Mutates() || route.Audit.Exempt != "" || m.record == nil {
		return
	}
	trail := TrailOf(r.Context())
	w.begins = func(status int) {
		if status >= 400 || trail.Rows() > 0 {
			return
		}
		if m.strictAudit {
			panic("httpapi: " + route.Pattern + " changed something and recorded nothing in the audit log")
		}
		m.log.Error("route recorded nothing in the audit log", "request", RequestID(r.Context()), "method", r.Method,
			"path", r.URL.Path)
		m.metrics.unaudited.Inc()
		m.complete(r, route, status)
	}
}

// refused records that a signed-in user was forbidden to make a change.
func (m *Mux) refused(r *http.Request, route Route, err error) {
	if m.record != nil && route.Mutates() && route.Audit.Exempt == "" && fault.CodeOf(err) == fault.Forbidden &&
		ActorFrom(r.Context()).SignedIn() {
		m.complete(r, route, fault.Forbidden.HTTPStatus())
	}
}

// complete writes a row for a request without one. The change is made or refused already, so a failure is only logged.
func (m *Mux) complete(r *http.Request, route Route, status int) {
	gap := Gap{Action: route.Audit.Action, Kind: route.Audit.Kind, Status: status}
	if names := wildcards(route.Pattern); len(names) > 0 {
		gap.Target = r.PathValue(names[len(names)-1])
	}
	if err := m.record(context.WithoutCancel(r.Context()), gap); err != nil {
		m.log.Error("cannot write to the audit log", "request", RequestID(r.Context()), "method", r.Method, "path",
			r.URL.Path, "err", err)
	}
}

// guess returns what an undeclared mutating route probably does, so that production has a row even of a route whose
// author forgot the declaration. The guard test of package coderd does not accept such a route.
func guess(route Route) Audit {
	method, _, _ := strings.Cut(route.Pattern, " ")
	action := map[string]string{http.MethodPost: "create", http.MethodDelete: "delete"}[method]
	if action == "" {
		action = "write"
	}
	return Audit{
		Action: action, Kind: strings.ReplaceAll(strings.ToLower(string(route.Permission.Resource())), " ", "_"),
	}
}

func wildcards(pattern string) []string {
	var names []string
	for {
		_, rest, ok := strings.Cut(pattern, "{")
		if !ok {
			return names
		}
		name, after, _ := strings.Cut(rest, "}")
		if name != "$" {
			names = append(names, strings.TrimSuffix(name, "..."))
		}
		pattern = after
	}
}
