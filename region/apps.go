package region

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/memo"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/meshclient"
)

const (
	// answerFresh is how long a server's answer about a visitor is used: a page asks for a hundred files at once.
	answerFresh = 15 * time.Second
	// renewEvery is the default of Options.RenewEvery. A visit that the servers refuse ends at once; while no server
	// answers, it goes on until its visa expires.
	renewEvery = 15 * time.Second
	// keepVisit is how long a visit without requests is renewed: connections to the app stay open for the next one.
	keepVisit = 45 * time.Second

	askTimeout       = 10 * time.Second
	introduceTimeout = 5 * time.Second
	maxAnswers       = 4096
)

// apps is the proxy's appproxy.Judge: it asks the servers, and reaches agents over the mesh. terminals.go adds
// terminals, ssh.go SSH, and wireguard.go devices.
//
//	browser ──▶ appproxy ──Decide──▶ server: VisitResponse{App, Visa} ──Dial──▶ mesh ──visa──▶ agent ──▶ localhost
//
// It knows what the servers have answered lately, and the visits that go on. It has nothing with which it could answer
// itself.
type apps struct {
	opts    Options
	log     *slog.Logger
	server  *sdk.Client
	answers *memo.Cache[question, VisitResponse]
	renews  func(context.Context, VisitRequest) (VisitResponse, error) // ask, or a test's
	devices *deviceHouse                                               // nil without a WireGuard gateway
	life    context.Context                                            // ends with the proxy
	working sync.WaitGroup                                             // a goroutine per visit

	joining sync.Mutex // one at a time makes the client
	mu      sync.Mutex // guards the fields below
	client  *meshclient.Client
	visits  map[uuid.UUID]*visit
}

// question is what an answer is for.
type question struct {
	appproxy.Question
	addr      netip.Addr
	userAgent string
}

// visit is a visitor's use of an app, a terminal, SSH or, for a device, a port.
type visit struct {
	id       uuid.UUID
	what     string // for people
	from     question
	agent    uuid.UUID
	ctx      context.Context // ends when the visit does
	end      context.CancelCauseFunc
	wake     notify.Wake // to be renewed now
	in, out  atomic.Int64
	traffic  appproxy.Traffic
	renew    func() VisitRequest // only keep calls it
	reported int32               // for renewApp: the status that the servers know

	// The apps' mutex guards the fields below.
	visa, renewal secret.Token
	until         time.Time // when the visa expires
	requests      int
	left          time.Time // when the last request ended
}

func newApps(ctx context.Context, opts Options, log *slog.Logger) *apps {
	a := &apps{
		opts: opts, log: log, life: ctx, visits: map[uuid.UUID]*visit{},
		server: sdk.New(opts.Server, "", sdk.Options{Header: http.Header{sdk.ProxyTokenHeader: {opts.Token.Reveal()}},
			TLS: opts.TLS}),
		answers: memo.New[question, VisitResponse](memo.Options{Fresh: answerFresh, Timeout: askTimeout,
			Max: maxAnswers}),
	}
	a.renews = a.ask
	if opts.WireGuard != nil {
		a.devices = newDeviceHouse(a)
	}
	return a
}

// close ends all visits, and leaves the mesh. The context must have ended.
func (a *apps) close() error {
	a.mu.Lock() // no visit begins from here on
	client := a.client
	a.mu.Unlock()
	a.working.Wait()
	a.server.HTTP().CloseIdleConnections()
	if client == nil {
		return nil
	}
	return client.Close()
}

// join makes this proxy a node of the mesh, again if the servers have refused it before.
func (a *apps) join() *meshclient.Client {
	a.joining.Lock()
	defer a.joining.Unlock()
	a.mu.Lock()
	old := a.client
	a.mu.Unlock()
	if old != nil && !old.Ended() {
		return old
	}
	client := meshclient.Start(meshclient.Options{
		URL: a.opts.Server, Header: http.Header{sdk.ProxyTokenHeader: {a.opts.Token.Reveal()}}, TLS: a.opts.TLS,
		Logger: a.log, Kind: protocol.KindProxy,
	})
	a.mu.Lock()
	a.client = client
	a.mu.Unlock()
	if old != nil {
		// Their visas are for the old node.
		a.answers.Forget(func(question, VisitResponse) bool { return true })
		if a.devices != nil {
			a.devices.forget(nil)
		}
		if err := old.Close(); err != nil {
			a.log.Warn("cannot leave the mesh", "err", err)
		}
	}
	return client
}

// ask asks a server about a visitor, or about a visit if renewal is set.
func (a *apps) ask(ctx context.Context, req VisitRequest) (resp VisitResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := a.join().Node()
	if err != nil {
		return resp, err
	}
	if req.Node == uuid.Nil {
		req.Node = node.ID()
	}
	switch {
	case req.SSH != nil:
		err = a.server.PostAsProxy(ctx, sshVisits, req, &resp)
	case req.Device != nil:
		err = a.server.PostAsProxy(ctx, deviceVisits, req, &resp)
	case req.Terminal != nil || req.Visit != "": // a terminal's token works once, and keep repeats renewals
		err = a.server.PostAsProxy(ctx, visits, req, &resp)
	default:
		err = a.server.AskAsProxy(ctx, visits, req, &resp)
	}
	return resp, err
}

// Decide implements appproxy.Judge.
func (a *apps) Decide(r *http.Request, q appproxy.Question) (appproxy.Answer, error) {
	from := question{q, clientaddr.Of(r), r.UserAgent()}
	resp, err := a.answers.Get(r.Context(), from, func(ctx context.Context) (VisitResponse, error) {
		return a.ask(ctx, VisitRequest{Question: q, Addr: from.addr, UserAgent: from.userAgent})
	})
	if err != nil {
		return appproxy.Answer{}, unreachable(err)
	}
	answer := resp.Answer
	if answer.App != nil && resp.Visa != "" {
		answer.Route, answer.Holder = resp.ID.String(), allowed{from, resp}
	}
	return answer, nil
}

// allowed is the holder of an answer.
type allowed struct {
	from question
	resp VisitResponse
}

// unreachable explains why the servers gave no answer.
func unreachable(err error) error {
	switch fault.CodeOf(err) {
	case fault.Unauthenticated, fault.Forbidden:
		return fault.New(fault.Unavailable, "This region is not available: %w", err).
			WithDetail("Open the app from the dashboard.")
	}
	return err
}

// Redeem implements appproxy.Judge.
func (a *apps) Redeem(ctx context.Context, x appproxy.Exchange) (secret.Token, error) {
	var resp RedeemResponse
	// A code works once: if the answer with the token is lost, the next one has none, and the browser gets another
	// code.
	if err := a.server.AskAsProxy(ctx, appCodes, x, &resp); err != nil {
		return "", unreachable(err)
	}
	return resp.Token, nil
}

// Enter implements appproxy.Judge.
func (a *apps) Enter(r *http.Request, answer appproxy.Answer) (*appproxy.Visit, error) {
	got, ok := answer.Holder.(allowed)
	if !ok {
		return nil, errors.New("the servers gave no visa for this app")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.life.Err() != nil {
		return nil, errStopping()
	}
	v := a.visits[got.resp.ID]
	if v == nil {
		v = a.begin("app", got.from, answer.App.AgentID, got.resp)
		v.traffic.In, v.traffic.Out = &v.in, &v.out
		v.renew = v.renewApp
		a.working.Go(func() { a.keep(v) })
	}
	v.requests++
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(v.ctx, func() { cancel(context.Cause(v.ctx)) })
	return &appproxy.Visit{Context: ctx, Traffic: &v.traffic, Leave: func() {
		stop()
		cancel(nil)
		a.mu.Lock()
		defer a.mu.Unlock()
		v.requests--
		v.left = time.Now()
	}}, nil
}

// begin registers a visit. Called with mu held.
func (a *apps) begin(what string, from question, agent uuid.UUID, resp VisitResponse) *visit {
	v := &visit{id: resp.ID, what: what, from: from, agent: agent, wake: notify.NewWake()}
	v.ctx, v.end = context.WithCancelCause(a.life)
	v.take(resp)
	a.visits[v.id] = v
	return v
}

func errStopping() error {
	return fault.New(fault.Unavailable, "This region proxy is stopping.").WithDetail("Continue from the dashboard.")
}

// renewApp returns the request that renews the visit of an app, with what passed since the last one.
func (v *visit) renewApp() VisitRequest {
	req := VisitRequest{In: v.in.Swap(0), Out: v.out.Swap(0)}
	if now := v.traffic.Status.Load(); now != v.reported {
		v.reported, req.Status = now, now
	}
	return req
}

// take stores the tokens of an answer.
func (v *visit) take(resp VisitResponse) {
	v.visa, v.renewal, v.until = resp.Visa, resp.Visit, time.Now().Add(visa.Lifetime)
}

// recheck has the servers asked about all visitors again, and about the devices of some owners, nil for all.
func (a *apps) recheck(owners []uuid.UUID) {
	a.answers.Forget(func(question, VisitResponse) bool { return true })
	if a.devices != nil {
		a.devices.forget(owners)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range a.visits {
		v.wake.Poke()
	}
}

// keep renews a visit until it ends: the servers refuse it, its visa expires, or it has no requests for a while.
func (a *apps) keep(v *visit) {
	defer a.drop(v)
	ticker := time.NewTicker(cmp.Or(a.opts.RenewEvery, renewEvery))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-v.wake:
		case <-v.ctx.Done():
			return
		}
		a.mu.Lock()
		quiet := v.requests == 0 && time.Since(v.left) > keepVisit
		renewal, until := v.renewal, v.until
		a.mu.Unlock()
		req := v.renew()
		req.Visit, req.Addr, req.UserAgent = renewal, v.from.addr, v.from.userAgent
		resp, err := a.renews(v.ctx, req)
		switch code := fault.CodeOf(err); {
		case v.ctx.Err() != nil:
			return
		case err == nil &&
			resp.Visa == "", code == fault.Unauthenticated, code == fault.Forbidden, code == fault.NotFound:
			v.end(fault.New(fault.Forbidden, "Your access to this %s has ended.", v.what))
			return
		case err != nil && time.Now().After(until):
			v.end(fault.New(fault.Unavailable, "The servers do not confirm your access to this %s.", v.what))
			return
		case err != nil:
			a.log.Warn("visit not renewed, trying again", "what", v.what, "agent", v.agent, "err", err)
			v.in.Add(req.In)
			v.out.Add(req.Out)
			continue
		case quiet:
			return
		}
		a.mu.Lock()
		v.take(resp)
		a.mu.Unlock()
		if err := a.present(v.ctx, v, resp.Visa); err != nil && v.ctx.Err() == nil {
			a.log.Debug("agent was not shown a visa", "agent", v.agent, "err", err)
		}
	}
}

// drop forgets a visit, and the agent if it was its last one.
func (a *apps) drop(v *visit) {
	v.end(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.visits, v.id)
	for _, other := range a.visits {
		if other.agent == v.agent {
			return
		}
	}
	a.client.Forget(v.agent) // it only queues a message
}

// present shows an agent a new visa of a visit.
func (a *apps) present(ctx context.Context, v *visit, token secret.Token) error {
	conn, err := a.dial(ctx, v.agent, visa.Renew, token)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Dial implements appproxy.Judge: a route is a visit's id. The agent knows the port from the visa.
func (a *apps) Dial(ctx context.Context, route string, _ uint16) (net.Conn, error) {
	id, err := uuid.Parse(route)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	v := a.visits[id]
	var token secret.Token
	if v != nil {
		token = v.visa
	}
	a.mu.Unlock()
	if v == nil {
		return nil, fault.New(fault.Unavailable, "The visit has ended.")
	}
	return a.dial(ctx, v.agent, visa.OpenPort, token)
}

// dial opens a connection to an agent and shows a visa.
func (a *apps) dial(ctx context.Context, agent uuid.UUID, verb visa.Verb, token secret.Token) (net.Conn, error) {
	client := a.join()
	if err := a.introduce(ctx, client, agent); err != nil {
		return nil, err
	}
	conn, err := client.Dial(ctx, "tcp", agent, meshport.Visit)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "The workspace's agent does not answer on the mesh: %w", err).
			WithDetail("It may have stopped or lost its network. Try again in a moment.")
	}
	if err := visa.WriteRequest(conn, verb, token); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// introduce waits until the agent can be dialled. A refusal may be of an earlier visit, so it asks again once.
func (a *apps) introduce(ctx context.Context, client *meshclient.Client, agent uuid.UUID) error {
	limited, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	err := client.Introduce(limited, agent)
	if err != nil && limited.Err() == nil {
		client.Forget(agent)
		err = client.Introduce(limited, agent)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("wait for agent %s: %w", agent, ctx.Err())
	}
	a.log.Debug("agent not introduced", "agent", agent, "err", err)
	return fault.New(fault.Unavailable, "The workspace's agent cannot be reached from this region.").
		WithDetail("Open it from the dashboard, which also says how the agent is.")
}
