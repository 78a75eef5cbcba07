package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Node is what a Client needs of a *tailnet.Node.
type Node interface {
	PublicKey() tailnet.PublicKey
	Info() tailnet.NodeInfo
	Changed() <-chan struct{}
	SetRelayMap(tailnet.RelayMap, *url.URL) error
	Upsert(tailnet.Peer) error
	Remove(uuid.UUID)
	SetOnline(bool)
}

// DialFunc opens a connection for messages and sends the hello. A refusal is a fault.
type DialFunc func(ctx context.Context, h protocol.Hello) (protocol.Conn, error)

// Options configures a Client. The caller makes the key first (tailnet.NewPrivateKey); NewNode makes the node once the
// server has assigned the participant's id.
type Options struct {
	Logger *slog.Logger // nil means silence

	// URL is the server's base URL. It also serves relays that have no URL of their own.
	URL *url.URL
	// Header returns the credential and other headers of a request. It is called for every dial. The client ends when
	// it returns a fault with the code unauthenticated, forbidden, invalid or conflict. Nil means no headers.
	Header func(ctx context.Context) (http.Header, error)
	// HTTPClient makes the websocket's request. Nil means one with TLS, which is not used otherwise; without TLS, the
	// system's trust.
	HTTPClient *http.Client
	TLS        *tls.Config
	// Dial replaces the websocket, for participants in the server's own process. Nil means the websocket.
	Dial DialFunc

	Kind protocol.Kind
	Key  tailnet.PublicKey
	// NewNode returns an existing or new node with Key and the id of the welcome. It is called once, after the first
	// welcome. The caller owns the node, and closes it after the Client.
	NewNode func(protocol.Welcome) (Node, error)
	// Inbound returns the ports to which peers of a kind may open connections. Nil means none.
	Inbound func(protocol.Kind) tailnet.Inbound
	// Group returns the group of a peer, as in tailnet.Peer. It must not block. Nil means that each peer is a group
	// alone.
	Group func(id uuid.UUID) uuid.UUID
	// Early returns the node if it exists before the welcome, which only a client's can because its id follows from its
	// key. The hello then carries its announcement. Nil, and a nil result, mean that there is none yet.
	Early func() Node
	// Name is as in Hello, for the first connection.
	Name string
	// Subscribe lists peers to see from the beginning. Agents and provisioners see servers without naming them.
	Subscribe []uuid.UUID
	// OnNotice is called with the server's notices; the client reads no other message until it returns. If nil, notices
	// are only logged.
	OnNotice func(protocol.Notice)
}

// Timings of a Client.
const (
	byeTimeout   = time.Second
	probeTimeout = 600 * time.Millisecond // for an answer after Reconnect: users wait, and an unnecessary new connection costs little
)

// Client keeps a participant connected to the coordinator, and dials again whenever the connection is lost. Its methods
// are safe for concurrent use.
type Client struct {
	opts Options
	log  *slog.Logger

	stop     chan struct{} // closed by Close
	stopOnce sync.Once
	done     chan struct{} // closed when Run has returned
	byeSent  chan struct{} // closed when bye was sent, or Run has returned
	byeOnce  sync.Once
	probe    notify.Wake // Reconnect was called
	due      notify.Wake // a deadline changed

	applying sync.Mutex // orders changes of the node's peers with those of peers below; taken before mu

	mu            sync.Mutex // guards everything below
	started       bool
	err           error // why Run has returned
	node          Node
	welcome       *protocol.Welcome
	welcomes      uint64 // received so far
	online        bool
	conn          protocol.Conn // the latest
	since         time.Time     // when its welcome came
	subscriptions map[uuid.UUID]*subscription
	peers         map[uuid.UUID]*remote
	lost          []loss                 // of peers, oldest first
	leaving       map[uuid.UUID]struct{} // unsubscribed on this connection, and not confirmed yet
	changed       notify.Broadcast       // of anything that await may wait for
	out           outbox
	order         uint64 // of introductions
}

// subscription records that callers of the Client want to see a peer.
type subscription struct {
	waiters int
	kept    bool            // granted to a caller, or one of the options': stays until Unsubscribe
	err     error           // the last refusal
	final   bool            // waiting will not change err
	pause   backoff.Backoff // between refusals in a row
	retry   time.Time       // when to ask again; zero if the server was asked, or will be after connecting
}

func newSubscription(kept bool) *subscription {
	return &subscription{kept: kept, pause: backoff.Backoff{Min: time.Second, Max: 15 * time.Second}}
}

// remote is a peer that the node has.
type remote struct {
	info  tailnet.NodeInfo
	kind  protocol.Kind
	order uint64
	pass  string // to show to a server that may not know the peer
	// lostAt is when the server reported the peer lost, or welcomed this client without confirming the peer. Zero:
	// connected.
	lostAt time.Time
	// doubtful is set when the last connection ended before the server confirmed an unsubscribe: a gone may still
	// follow.
	doubtful bool
}

// loss is that of a peer, with what was known of it. It is void once the peer has returned, or is gone.
type loss struct {
	id   uuid.UUID
	peer *remote
}

// lose notes that the server may have lost a peer. The peer is removed after the grace period, counted from the first
// time. Called with mu held.
func (c *Client) lose(id uuid.UUID, k *remote) {
	if !k.lostAt.IsZero() {
		return
	}
	k.lostAt = time.Now()
	if len(c.lost) >= 2*len(c.peers)+64 { // a peer may come and go
		c.lost = slices.DeleteFunc(c.lost, c.void)
	}
	c.lost = append(c.lost, loss{id, k})
	if len(c.lost) == 1 {
		c.due.Poke() // the others come later
	}
}

// void reports whether a loss is. Called with mu held.
func (c *Client) void(l loss) bool { return c.peers[l.id] != l.peer }

// New returns a client that does nothing until Run or Start.
func New(opts Options) *Client {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Group == nil {
		opts.Group = func(uuid.UUID) uuid.UUID { return uuid.Nil }
	}
	if opts.Inbound == nil {
		opts.Inbound = func(protocol.Kind) tailnet.Inbound { return tailnet.InboundNone }
	}
	c := &Client{
		opts: opts, log: opts.Logger,
		stop: make(chan struct{}), done: make(chan struct{}), byeSent: make(chan struct{}),
		probe: notify.NewWake(), due: notify.NewWake(),
		subscriptions: make(map[uuid.UUID]*subscription), peers: make(map[uuid.UUID]*remote), leaving: make(map[uuid.UUID]struct{}),
		out: newOutbox(),
	}
	for _, id := range opts.Subscribe {
		c.subscriptions[id] = newSubscription(true)
	}
	return c
}

// Start calls Run on a goroutine, which Close waits for.
func (c *Client) Start() {
	if c.begin() {
		go func() { _ = c.run(context.Background()) }() // Err returns it
	}
}

// Run keeps the participant connected until Close or the end of ctx: then it sends bye and returns nil. If the server
// refuses the participant, Run removes the node's peers and returns the fault. After any other error it tries again. A
// client runs once.
func (c *Client) Run(ctx context.Context) error {
	if !c.begin() {
		return nil
	}
	return c.run(ctx)
}

// begin reports whether the caller may run.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		return false
	}
	c.started = true
	return true
}

// Close sends bye and waits until the client has stopped, a few seconds at most. It is idempotent. The node keeps its
// peers.
func (c *Client) Close() error {
	c.stopOnce.Do(func() { close(c.stop) })
	if c.begin() {
		c.end(nil) // it never ran
	}
	<-c.done
	return nil
}

// Leave is like Close, but returns as soon as the bye is sent.
func (c *Client) Leave() {
	c.stopOnce.Do(func() { close(c.stop) })
	if c.begin() {
		c.end(nil) // it never ran
	}
	<-c.byeSent
}

// Done is closed when the client has stopped. Err returns the reason.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns the fault that ended the client, or nil while it runs and after Close.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Online reports whether there is a connection now.
func (c *Client) Online() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.online
}

// Welcome blocks until the first welcome, and returns the latest.
func (c *Client) Welcome(ctx context.Context) (protocol.Welcome, error) {
	var w protocol.Welcome
	err := c.await(ctx, "wait for the coordinator", func() (bool, error) {
		if c.welcome != nil {
			w = *c.welcome
		}
		return c.welcome != nil, nil
	})
	return w, err
}

// Subscribe asks to see a peer, and blocks until the node can reach it. It waits for a peer that is not connected. It
// returns at once if the node has the peer already, even an offline one, unless an earlier Unsubscribe is not confirmed
// yet. If the server refuses, the error is a fault with the reason. If ctx ends, Subscribe withdraws the subscription
// unless another caller waits for or holds it.
func (c *Client) Subscribe(ctx context.Context, id uuid.UUID) error {
	c.mu.Lock()
	w := c.subscriptions[id]
	if w == nil {
		w = newSubscription(false)
		c.subscriptions[id] = w
		c.out.subscribe(id)
	}
	w.waiters++
	c.mu.Unlock()

	err := c.await(ctx, fmt.Sprintf("wait for peer %s", id), func() (bool, error) {
		if w.final {
			return false, w.err
		}
		_, leaving := c.leaving[id]
		k := c.peers[id]
		return k != nil && !k.doubtful && !leaving, w.err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	w.waiters--
	if err == nil {
		w.kept = true
	} else if !w.kept && w.waiters == 0 && c.subscriptions[id] == w {
		delete(c.subscriptions, id)
		c.out.unsubscribe(id)
	}
	return err
}

// Unsubscribe gives up a subscription. The node keeps the peer until the server reports it gone.
func (c *Client) Unsubscribe(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.subscriptions[id]; w != nil {
		w.err, w.final = fault.New(fault.Conflict, "the subscription was given up"), true
		delete(c.subscriptions, id)
		c.out.unsubscribe(id)
		c.changed.Notify()
	}
}

// Server blocks until a server is among the peers, and returns the latest introduced one: connected ones first, and
// first of these the ones to which the coordinator connection leads. Other servers are peers while a person's terminal
// or app goes through them.
func (c *Client) Server(ctx context.Context) (tailnet.NodeInfo, error) {
	var best *remote
	err := c.await(ctx, "wait for the server's node", func() (bool, error) {
		best = nil
		for _, k := range c.peers {
			if k.kind == protocol.KindServer && (best == nil || c.better(k, best)) {
				best = k
			}
		}
		return best != nil, nil
	})
	if err != nil {
		return tailnet.NodeInfo{}, err
	}
	return best.info, nil
}

// ServerLastSeen returns since when the coordinator connection leads to the given server, and when the connection last
// brought a sign of life. It returns zero times if there is no connection, or it leads to another server.
func (c *Client) ServerLastSeen(server uuid.UUID) (since, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.online || !slices.Contains(c.welcome.Servers, server) {
		return time.Time{}, time.Time{}
	}
	return c.since, protocol.LastSeen(c.conn)
}

// Replaced blocks until the server's node with the given id is lost or gone while another server is connected, or the
// coordinator connection leads to another server, which is connected. It fails if ctx or the client ends first.
func (c *Client) Replaced(ctx context.Context, id uuid.UUID) error {
	return c.await(ctx, "wait for another server", func() (bool, error) {
		old := c.peers[id]
		for other, k := range c.peers {
			if other != id && k.kind == protocol.KindServer && k.lostAt.IsZero() &&
				(old == nil || !old.lostAt.IsZero() || c.leads(k) && !c.leads(old)) {
				return true, nil
			}
		}
		return false, nil
	})
}

// better reports whether server k is a better one to call. Called with mu held.
func (c *Client) better(k, than *remote) bool {
	switch {
	case k.lostAt.IsZero() != than.lostAt.IsZero():
		return k.lostAt.IsZero()
	case c.leads(k) != c.leads(than):
		return c.leads(k)
	}
	return k.order > than.order
}

// leads reports whether the coordinator connection leads, or last led, to a server. Called with mu held.
func (c *Client) leads(k *remote) bool {
	return c.welcome != nil && slices.Contains(c.welcome.Servers, k.info.ID)
}

// Peer returns a peer of the node.
func (c *Client) Peer(id uuid.UUID) (info tailnet.NodeInfo, kind protocol.Kind, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.peers[id]; k != nil {
		return k.info, k.kind, true
	}
	return tailnet.NodeInfo{}, "", false
}

// Reconnect tells the client that the network has changed or the machine has slept: the client gives up a connection
// that does not answer within 0.6 s, and cuts a pause between two dials short. It does not block.
func (c *Client) Reconnect() { c.probe.Poke() }

// await blocks until ready, which it calls with mu held, returns true. An error of ready ends the wait at once, unless
// the error is transient: then await returns it when ctx ends.
func (c *Client) await(ctx context.Context, what string, ready func() (bool, error)) error {
	for {
		c.mu.Lock()
		ok, reason := ready()
		changed := c.changed.Changed()
		c.mu.Unlock()
		if ok {
			return nil
		}
		if reason != nil && !transient(reason) {
			return reason
		}
		select {
		case <-changed:
		case <-c.done:
			if err := c.Err(); err != nil {
				return err
			}
			return fault.New(fault.Unavailable, "%s: the mesh connection is closed", what)
		case <-ctx.Done():
			if reason != nil {
				return reason
			}
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}

// transient reports whether the server may grant a moment later what it refused with err.
func transient(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable, fault.Internal, fault.RateLimited:
		return true
	}
	return false
}

// dialWebsocket is the default DialFunc.
func (c *Client) dialWebsocket(ctx context.Context, h protocol.Hello) (protocol.Conn, error) {
	if c.opts.URL == nil {
		return nil, fault.New(fault.Invalid, "no server URL is set")
	}
	u := c.opts.URL.JoinPath(protocol.Path)
	u.RawQuery, u.Fragment = h.Query().Encode(), ""
	opts := websock.DialOptions{ReadLimit: protocol.MaxServerMessage, HTTPClient: c.opts.HTTPClient, TLS: c.opts.TLS}
	if c.opts.Header != nil {
		header, err := c.opts.Header(ctx)
		if err != nil {
			return nil, fmt.Errorf("get credential: %w", err)
		}
		opts.Header = header
	}
	if node := h.Header(); node != nil {
		if opts.Header == nil {
			opts.Header = make(http.Header)
		}
		maps.Copy(opts.Header, node)
	}
	conn, err := websock.Dial(ctx, u, opts)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// refusedForGood reports whether trying again is pointless.
func refusedForGood(err error) bool {
	var setup *setupError
	if errors.As(err, &setup) {
		return true
	}
	switch fault.CodeOf(err) {
	case fault.Unauthenticated, fault.Forbidden, fault.Invalid, fault.Conflict:
		return true
	}
	return false
}

// setupError reports that the node could not be made, or has the wrong key or id.
type setupError struct{ err error }

func (e *setupError) Error() string { return e.err.Error() }
func (e *setupError) Unwrap() error { return e.err }
