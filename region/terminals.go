package region

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/ptyweb"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// reportTimeout bounds the report that a terminal has ended: a proxy that stops waits for it.
const reportTimeout = 2 * time.Second

// serveTerminal serves a terminal's websocket, at the path and with the query that it has at a server. The browser has
// no session here: its page brings a token that the servers signed for this visit.
func (a *apps) serveTerminal(w http.ResponseWriter, r *http.Request) {
	if err := a.terminal(w, r); err != nil {
		refuse(w, err)
	}
}

// refuse answers a request in the form of the servers' API.
func refuse(w http.ResponseWriter, err error) {
	f := fault.As(err)
	if f == nil {
		f = fault.New(fault.Internal, "The region proxy cannot open the terminal.")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(f.Code.HTTPStatus())
	// an error means that the client has disconnected
	_ = json.NewEncoder(w).Encode(map[string]string{"message": f.Message, "detail": f.Detail})
}

// terminal serves a terminal to its end. It returns an error if it has answered nothing.
func (a *apps) terminal(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	agent, err := uuid.Parse(r.PathValue("agent"))
	if err != nil {
		return fault.New(fault.NotFound, "There is no such agent.")
	}
	open, err := ptyweb.ParseRequest(query)
	if err != nil {
		return err
	}
	node, err := a.join().Node()
	if err != nil {
		return err
	}
	from := question{addr: clientaddr.Of(r), userAgent: r.UserAgent()}
	resp, err := a.ask(r.Context(), VisitRequest{
		Terminal: &Terminal{Agent: agent, Token: secret.Token(query.Get(sdk.TerminalTokenParam)),
			Origin: r.Header.Get("Origin")},
		Node: node.ID(), Addr: from.addr, UserAgent: from.userAgent,
	})
	if err != nil {
		return err
	}
	if resp.Visa == "" {
		return fault.New(fault.Unavailable, "The server opens no terminals at regions: it has an earlier version.")
	}
	a.mu.Lock()
	if a.life.Err() != nil {
		a.mu.Unlock()
		return errStopping()
	}
	a.working.Add(1)
	v := a.begin("terminal", from, agent, resp)
	v.requests = 1
	v.renew = func() VisitRequest { return VisitRequest{Terminal: &Terminal{Agent: agent}} }
	a.working.Go(func() { a.keep(v) })
	a.mu.Unlock()
	defer a.working.Done()
	defer v.end(nil)

	reason := "the terminal could not be opened"
	defer func() { a.ended(v, node.ID(), reason) }()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(v.ctx, cancel)()
	conn, err := a.dial(ctx, agent, visa.OpenPort, resp.Visa)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(v.ctx, func() { conn.Close() })()
	counted := countedConn{conn, &v.in, &v.out}
	if err := ptywire.WriteJSON(counted, ptywire.Open, open); err != nil {
		return fault.New(fault.Unavailable, "The workspace's agent cannot be reached: %w", err).
			WithDetail("Try again in a moment.")
	}
	// The token is for the page's origin, so the origin needs no other check.
	ws, err := websock.Accept(w, r, websock.AcceptOptions{ReadLimit: ptyweb.ReadLimit, OriginHosts: []string{"*"}})
	if err != nil {
		return nil // already answered
	}
	ended, err := ptyweb.Serve(context.WithoutCancel(ctx), a.log, ws, counted, v.canceled)
	reason = cmp.Or(ended, "closed by the client")
	if err != nil {
		a.log.Debug("terminal not closed in order", "agent", agent, "err", err)
	}
	return nil
}

// canceled reports why the proxy has ended a terminal, if it has.
func (v *visit) canceled() (websock.Status, string, bool) {
	switch f := fault.As(context.Cause(v.ctx)); {
	case v.ctx.Err() == nil:
		return 0, "", false
	case f == nil:
		return websock.StatusGoingAway, "the region proxy is stopping", true
	case f.Code == fault.Unavailable:
		return websock.StatusTryAgain, f.Message, true
	default:
		return websock.StatusPolicy, f.Message, true
	}
}

// ended reports the end of a terminal, for the connection log. It may be called after the proxy's life has ended, so it
// does not join.
func (a *apps) ended(v *visit, node uuid.UUID, reason string) {
	a.mu.Lock()
	renewal := v.renewal
	a.mu.Unlock()
	a.report(v, visits, VisitRequest{
		Visit: renewal, Terminal: &Terminal{Agent: v.agent, Ended: reason, In: v.in.Load(), Out: v.out.Load()},
		Node: node, Addr: v.from.addr, UserAgent: v.from.userAgent,
	})
}

// report tells the servers of the end of a visit, for the connection log.
func (a *apps) report(v *visit, route string, end VisitRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx), reportTimeout)
	defer cancel()
	if err := a.server.PostAsProxy(ctx, route, end, &VisitResponse{}); err != nil {
		a.log.Warn("cannot report the end of a visit", "what", v.what, "agent", v.agent, "err", err)
	}
}

// countedConn counts the bytes into and out of a workspace.
type countedConn struct {
	net.Conn
	in, out *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.out.Add(int64(n))
	return n, err
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.in.Add(int64(n))
	return n, err
}

func (c countedConn) CloseWrite() error { return netio.CloseWrite(c.Conn) }
