package apps

import (
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// maxSessions bounds the visitors that are recorded at once. Further ones are served, and not recorded.
	maxSessions = 4096
	// quiet is how long a visit lasts without a request: a page asks for many files, and again for news.
	quiet = time.Minute
)

// recorder makes one row of the connection log from all requests of a visitor to an app.
type recorder struct {
	to *audit.Connections

	mu       sync.Mutex // guards the fields below, and the sessions'
	sessions map[sessionKey]*session
	stopped  bool
}

type sessionKey struct {
	what      audit.ConnectionType
	agent     uuid.UUID
	target    string
	user      uuid.UUID
	addr      netip.Addr
	userAgent string
	region    string // the region proxy; "" for this server
}

// session is one visitor's use of one app.
type session struct {
	open    *audit.Open
	traffic appproxy.Traffic

	requests int         // guarded by the recorder's mu: that are being served
	idle     *time.Timer // guarded by the recorder's mu: ends the session; nil while there are requests
}

func sessionOf(who visitor, a target, addr netip.Addr, userAgent, region string) sessionKey {
	key := sessionKey{
		what: audit.App, agent: a.AgentID, target: a.Place.Slug, user: who.actor.UserID, addr: addr,
		userAgent: userAgent, region: region,
	}
	if port := strconv.Itoa(int(a.Port)); strings.TrimSuffix(a.Place.Slug, "s") == port {
		key.what, key.target = audit.PortForwarding, port
	}
	return key
}

// refused records that a signed-in visitor may not open an app. Others are sent to the sign-in page.
func (s *Service) refused(who visitor, to found, addr netip.Addr, userAgent, region string) {
	if !to.ok {
		return
	}
	key := sessionOf(who, to.target, addr, userAgent, region)
	_ = s.opts.Connections.Refused(audit.Connection{ // it returns the reason
		Type: key.what, Agent: key.agent, User: key.user, Target: key.target, Addr: key.addr,
		UserAgent: key.userAgent, Region: key.region,
	}, fault.New(fault.NotFound, "no access"))
}

// request begins a request of a session. done ends it.
func (r *recorder) request(key sessionKey) (x *session, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x = r.sessions[key]
	if x == nil {
		if r.to == nil || r.stopped || len(r.sessions) >= maxSessions {
			return nil, func() {}
		}
		x = &session{open: r.to.Begin(audit.Connection{
			Type: key.what, Agent: key.agent, User: key.user, Target: key.target, Addr: key.addr,
			UserAgent: key.userAgent, Region: key.region,
		})}
		x.traffic.In, x.traffic.Out = &x.open.In, &x.open.Out
		r.sessions[key] = x
	}
	x.requests++
	if x.idle != nil {
		x.idle.Stop()
		x.idle = nil
	}
	return x, func() { r.leave(key, x) }
}

func (r *recorder) leave(key sessionKey, x *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.requests--
	if r.stopped {
		x.end()
		return
	}
	if x.requests > 0 {
		return
	}
	var idle *time.Timer
	idle = time.AfterFunc(quiet, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if x.idle == idle {
			delete(r.sessions, key)
			x.end()
		}
	})
	x.idle = idle
}

func (x *session) end() { x.open.End("", int(x.traffic.Status.Load())) }

// stop ends all sessions.
func (r *recorder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	for _, x := range r.sessions {
		if x.idle != nil {
			x.idle.Stop()
			x.idle = nil
		}
		if x.requests == 0 {
			x.end()
		}
	}
}
