package apps

import (
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/audit"
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
}

// session is one visitor's use of one app.
type session struct {
	open   *audit.Open
	status atomic.Int32 // of the first answer

	requests int         // guarded by the recorder's mu: that are being served
	idle     *time.Timer // guarded by the recorder's mu: ends the session; nil while there are requests
}

func (s *Service) sessionOf(r *http.Request, who visitor, a app) sessionKey {
	key := sessionKey{what: audit.App, agent: a.agentID, target: a.slug, user: who.actor.UserID, addr: s.opts.Clients.Addr(r), userAgent: r.UserAgent()}
	if port := strconv.Itoa(int(a.port)); strings.TrimSuffix(a.slug, "s") == port {
		key.what, key.target = audit.PortForwarding, port
	}
	return key
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
			Type: key.what, Agent: key.agent, User: key.user, Target: key.target, Addr: key.addr, UserAgent: key.userAgent,
		})}
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

func (x *session) end() { x.open.End("", int(x.status.Load())) }

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

// asks counts what a request sends.
func (x *session) asks(r *http.Request) {
	if x != nil && r.Body != nil && r.Body != http.NoBody {
		r.Body = countedBody{r.Body, &x.open.In}
	}
}

// answered counts what an answer brings.
func (x *session) answered(resp *http.Response) {
	if x == nil {
		return
	}
	x.status.CompareAndSwap(0, int32(resp.StatusCode))
	if both, ok := resp.Body.(io.ReadWriteCloser); ok { // a websocket
		resp.Body = countedStream{both, &x.open.Out, &x.open.In}
		return
	}
	resp.Body = countedBody{resp.Body, &x.open.Out}
}

type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

type countedStream struct {
	io.ReadWriteCloser
	out, in *atomic.Int64
}

func (c countedStream) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	c.out.Add(int64(n))
	return n, err
}

func (c countedStream) Write(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(p)
	c.in.Add(int64(n))
	return n, err
}
