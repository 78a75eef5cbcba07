// Package appproxy opens services of a workspace in a browser: the apps of its template, and any port. A request
// arrives at the app's own host or at a path of this process's host. A Judge decides whether the visitor may open the
// app; the package then forwards the request to it.
//
//	code--main--dev--ann.apps.example.com ──▶ token of this host ──▶ Judge ──▶ proxy ──▶ Judge.Dial ──▶ agent ──▶ localhost
//	        │ none                                 ▲
//	        └──▶ dashboard: session ──▶ code ──────┘
//
// The server has a Judge of its own (coderd/apps). A region proxy's Judge asks the servers (package region), so the
// proxy knows no session, and holds no key with which it could make a token.
//
// Content from a workspace is not trusted: an app sees neither the dashboard's session nor another app's token, its
// pages have their own origin, and requests that another app's page sends with a visitor's cookies are refused. path.go
// describes apps by path, which have no host.
package appproxy

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Options configure a Handler. All fields are required unless they say otherwise.
type Options struct {
	Logger *slog.Logger
	Judge  Judge
	// URL is where browsers reach this process's own host. Apps by path are below it.
	URL *url.URL
	// Dashboard is the dashboard's URL. If it is another one than URL, this host has no sessions.
	Dashboard *url.URL
	// WildcardHost is the pattern of the apps' hosts: "*.apps.example.com", with a port if it is not the scheme's
	// default. Empty means none.
	WildcardHost string
	// NoPaths refuses apps by path.
	NoPaths bool
}

// Judge decides who may open what, and reaches it. Its errors are faults.
type Judge interface {
	// Decide answers a question about a request.
	Decide(r *http.Request, q Question) (Answer, error)
	// Redeem exchanges a code for a token of the place. It returns "" for a code that is not valid, and for one that
	// was redeemed before.
	Redeem(ctx context.Context, x Exchange) (secret.Token, error)
	// Enter begins a request that Decide has allowed.
	Enter(r *http.Request, a Answer) (*Visit, error)
	// Dial opens a connection to a port of an answer's Route.
	Dial(ctx context.Context, route string, port uint16) (net.Conn, error)
}

// Proof is what a request shows of its visitor.
type Proof struct {
	Kind  ProofKind    `json:"kind,omitempty"`
	Token secret.Token `json:"token,omitempty"`
}

// ProofKind is what a Proof's token is. The zero value means that there is none.
type ProofKind string

const (
	// BySession is the token of a session, in a header that a program has set.
	BySession ProofKind = "session"
	// ByDashboard is the dashboard's cookie. Only a Judge on the dashboard's host sees it, in the request.
	ByDashboard ProofKind = "dashboard"
	// ByHost is the cookie of an app's host.
	ByHost ProofKind = "host"
	// ByPath is the token in an app's path.
	ByPath ProofKind = "path"
)

// Question asks whether a visitor may open what a place names.
type Question struct {
	Place  Place `json:"place"`
	ByPath bool  `json:"by_path,omitempty"` // the address is a path of a host that apps share
	Proof  Proof `json:"proof,omitzero"`
}

// Answer answers a Question.
type Answer struct {
	// App is what the visitor may open; nil if there is nothing, or they may not.
	App *App `json:"app,omitempty"`
	// SignedIn reports that the proof is a user's.
	SignedIn bool `json:"signed_in,omitempty"`
	// Token replaces the proof: the renewed one of a host, or the path's one for the dashboard's cookie.
	Token secret.Token `json:"token,omitempty"`
	// Route is where Judge.Dial reaches the app. It is a valid host name.
	Route string `json:"-"`
	// By is what the visitor proved themselves with, and Holder what the Judge remembers of them.
	By     ProofKind `json:"-"`
	Holder any       `json:"-"`
}

// Exchange is a code, with the hash of the state of the browser that asked for it.
type Exchange struct {
	Place  Place        `json:"place"`
	ByPath bool         `json:"by_path,omitempty"`
	Code   secret.Token `json:"code"`
	State  string       `json:"state"`
}

// Visit is a request in progress.
type Visit struct {
	// Context ends when the visitor loses the right to the visit.
	Context context.Context
	// Traffic counts what passes. Nil counts nothing.
	Traffic *Traffic
	// Leave ends the visit. It is called once.
	Leave func()
}

// Traffic is what passed between visitors and an app.
type Traffic struct {
	In, Out *atomic.Int64 // bytes into and out of the workspace
	Status  atomic.Int32  // of the first answer
}

// App is what a place leads to.
type App struct {
	Place   Place         `json:"place"` // with the agent's name
	AgentID uuid.UUID     `json:"agent_id"`
	Name    string        `json:"name"` // for people
	Health  sdk.AppHealth `json:"health"`
	Running bool          `json:"running"`
	Port    uint16        `json:"port"`
	TLS     bool          `json:"tls,omitempty"`
	// Start is the path and query of the app's own address, without the leading slash.
	Start string `json:"start,omitempty"`
	// Unusable explains why the app cannot be proxied to; "" if it can.
	Unusable string `json:"unusable,omitempty"`
}

// Handler serves apps. Safe for concurrent use.
type Handler struct {
	opts      Options
	log       *slog.Logger
	hosts     Hosts
	secure    bool
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	crowd     crowd
}

// New returns a handler. It panics if ParseWildcard refuses the WildcardHost.
func New(opts Options) *Handler {
	h := &Handler{opts: opts, log: opts.Logger, hosts: NewHosts(opts.URL, opts.WildcardHost),
		secure: opts.URL.Scheme == "https"}
	h.transport = newTransport(opts.Judge.Dial)
	h.proxy = h.newProxy()
	return h
}

// Wrap serves apps, and passes every other request to next.
func (h *Handler) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if label, ok := h.hosts.label(r.Host); ok {
			h.serveHost(w, r, label)
			return
		}
		if p, ok := parsePath(r.URL); ok {
			h.servePath(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Close ends idle connections to apps.
func (h *Handler) Close() { h.transport.CloseIdleConnections() }

// away reports whether the dashboard is on another host.
func (h *Handler) away() bool { return h.opts.URL.Host != h.opts.Dashboard.Host }
