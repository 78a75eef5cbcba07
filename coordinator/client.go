package coordinator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/internal/backoff"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/notify"
	"github.com/codermesh/codermesh/internal/websock"
	"github.com/codermesh/codermesh/tailnet"
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

// DialFunc opens a connection that carries messages, having said hello. A refusal is a fault.
type DialFunc func(ctx context.Context, h Hello) (Conn, error)

// ClientOptions of a Client. The key is made first (tailnet.NewPrivateKey); the node is made by NewNode when the server
// has told the participant's id.
type ClientOptions struct {
	Logger *slog.Logger // nil means silence

	// URL is the server's base URL, by which relays without a URL of their own are reached too.
	URL *url.URL
	// Header returns the credential and whatever else goes with a request. It is called for every dial. When it returns a
	// fault that says unauthenticated, forbidden, invalid or conflict the client ends. Nil means none.
	Header func(ctx context.Context) (http.Header, error)
	// HTTPClient and TLS are as in websock.DialOptions.
	HTTPClient *http.Client
	TLS        *tls.Config
	// Dial replaces the websocket, for participants in the server's own process. Nil means the websocket.
	Dial DialFunc

	Kind Kind
	Key  tailnet.PublicKey
	// NewNode makes the node, or hands over the one that exists, for the id in the welcome and with Key. It is called once,
	// when the first welcome has come. The node stays its maker's, to be closed after the Client.
	NewNode func(Welcome) (Node, error)
	// Inbound says to which ports peers of a kind may open connections. Nil means none.
	Inbound func(Kind) tailnet.Inbound
	// Early returns the node where it is there before the welcome, as a client's can be, whose id follows from its key. Its
	// announcement then travels in the hello. Nil, and a nil result, mean that it is not.
	Early func() Node
	// Name is as in Hello, for the first connection.
	Name string
	// Subscribe are peers to see from the beginning. Servers need not be named: agents and provisioners see them anyway.
	Subscribe []uuid.UUID
	// OnNotice hears the server's notices, on a goroutine that reads nothing else meanwhile. Nil means they are logged only.
	OnNotice func(Notice)
}

// Timings of a Client.
const (
	dialTimeout  = 10 * time.Second // to the welcome
	byeTimeout   = time.Second
	probeTimeout = 600 * time.Millisecond // for an answer after Reconnect: people wait, and a needless new connection costs little
)

// Client is a participant's connection to the coordinator: dialled again as often as it takes. Its methods are safe for
// concurrent use.
type Client struct {
	opts ClientOptions
	log  *slog.Logger

	stop     chan struct{} // closed by Close
	stopOnce sync.Once
	done     chan struct{} // closed when Run is over
	byeSent  chan struct{} // closed when bye was said, or Run is over
	byeOnce  sync.Once
	probe    notify.Wake // Reconnect was called
	due      notify.Wake // a deadline changed

	applying sync.Mutex // orders changes of the node's peers with those of peers below; taken before mu

	mu            sync.Mutex // guards everything below
	started       bool
	err           error // why Run ended
	node          Node
	welcome       *Welcome
	welcomes      uint64 // how many there were
	online        bool
	subscriptions map[uuid.UUID]*subscription
	peers         map[uuid.UUID]*remote
	leaving       map[uuid.UUID]struct{} // whose end of subscription the server was told, and has not confirmed on this connection
	changed       notify.Broadcast       // of anything that await may wait for
	out           outbox
	order         uint64 // of introductions
}

// subscription is a peer that callers of the Client want to see.
type subscription struct {
	waiters int
	kept    bool            // it was granted to a caller, or is one of the options': it stays until Unsubscribe
	err     error           // the last refusal
	final   bool            // err will not change by waiting
	pause   backoff.Backoff // between refusals in a row
	retry   time.Time       // when to ask again; zero: the server was asked, or will be on connecting
}

func newSubscription(kept bool) *subscription {
	return &subscription{kept: kept, pause: backoff.Backoff{Min: time.Second, Max: 15 * time.Second}}
}

// remote is a peer that the node has.
type remote struct {
	info  tailnet.NodeInfo
	kind  Kind
	order uint64
	pass  string // what the server has to be shown when it may not know the peer
	// lostAt is when the server said that it lost the peer, or began not to confirm it. Zero: it is connected.
	lostAt time.Time
	// doubtful is a peer that was given up on the connection before, perhaps unheard: the server may say so yet.
	doubtful bool
}

// NewClient returns a client that does nothing yet: Run or Start it.
func NewClient(opts ClientOptions) *Client {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Inbound == nil {
		opts.Inbound = func(Kind) tailnet.Inbound { return tailnet.InboundNone }
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

// Start is Run on a goroutine of the client's own, which Close waits for.
func (c *Client) Start() {
	if c.begin() {
		go func() { _ = c.run(context.Background()) }() // Err returns it
	}
}

// Run keeps the participant connected until Close, or ctx ends (it says bye then, and returns nil), or the server refuses:
// then the node loses its peers, and Run returns the fault. Whatever else happens it tries again. A client runs once.
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

// Close says bye, and waits until the client does nothing any more; that takes a few seconds at most. It is idempotent. The
// node keeps its peers.
func (c *Client) Close() error {
	c.stopOnce.Do(func() { close(c.stop) })
	if c.begin() {
		c.end(nil) // it never ran
	}
	<-c.done
	return nil
}

// Leave is Close that waits only until the bye is on its way.
func (c *Client) Leave() {
	c.stopOnce.Do(func() { close(c.stop) })
	if c.begin() {
		c.end(nil) // it never ran
	}
	<-c.byeSent
}

// Done is closed when the client does nothing any more. Err says why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is the fault that ended the client. Nil while it runs, and when it was closed.
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
func (c *Client) Welcome(ctx context.Context) (Welcome, error) {
	var w Welcome
	err := c.await(ctx, "wait for the coordinator", func() (bool, error) {
		if c.welcome != nil {
			w = *c.welcome
		}
		return c.welcome != nil, nil
	})
	return w, err
}

// Subscribe asks to see a peer, and blocks until the node can reach it, ctx ends (the subscription is withdrawn then, unless
// another caller waits for it or was granted it) or the server refuses: the error is a fault with the reason then. A peer that is
// not connected is waited for. Peers that are known already, even while offline, are not waited for, unless the server is still to
// confirm that they were given up.
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

// Unsubscribe gives up a subscription. The node forgets the peer when the server says so.
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

// Server blocks until a server is among the peers, and returns the best: a connected one, of these the latest introduced.
func (c *Client) Server(ctx context.Context) (tailnet.NodeInfo, error) {
	var best *remote
	err := c.await(ctx, "wait for the server's node", func() (bool, error) {
		best = nil
		for _, k := range c.peers {
			if k.kind == KindServer && (best == nil || k.better(best)) {
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

// Replaced blocks until the server's node with the given id is lost or gone while another one is there: whoever talks to it had
// better talk to that. An error means that ctx or the client ended first.
func (c *Client) Replaced(ctx context.Context, id uuid.UUID) error {
	return c.await(ctx, "wait for another server", func() (bool, error) {
		if k := c.peers[id]; k != nil && k.lostAt.IsZero() {
			return false, nil
		}
		for other, k := range c.peers {
			if other != id && k.kind == KindServer && k.lostAt.IsZero() {
				return true, nil
			}
		}
		return false, nil
	})
}

func (k *remote) better(than *remote) bool {
	if k.lostAt.IsZero() != than.lostAt.IsZero() {
		return k.lostAt.IsZero()
	}
	return k.order > than.order
}

// Peer is what is known of a peer.
func (c *Client) Peer(id uuid.UUID) (info tailnet.NodeInfo, kind Kind, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.peers[id]; k != nil {
		return k.info, k.kind, true
	}
	return tailnet.NodeInfo{}, "", false
}

// Reconnect is for whoever knows that the network changed or the machine slept: a connection that does not answer within
// 0.6 s is given up, and a pause between two dials is cut short.
func (c *Client) Reconnect() { c.probe.Poke() }

// await blocks until ready, which is called with mu held, returns true. An error that it returns with false ends the wait
// at once, unless it is transient: then it is what await returns when ctx ends.
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

// transient reports whether what was refused may be granted a moment later.
func transient(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable, fault.Internal, fault.RateLimited:
		return true
	}
	return false
}

// dialWebsocket is the default DialFunc.
func (c *Client) dialWebsocket(ctx context.Context, h Hello) (Conn, error) {
	if c.opts.URL == nil {
		return nil, fault.New(fault.Invalid, "no server URL is set")
	}
	u := c.opts.URL.JoinPath(Path)
	u.RawQuery, u.Fragment = h.query().Encode(), ""
	opts := websock.DialOptions{ReadLimit: MaxServerMessage, HTTPClient: c.opts.HTTPClient, TLS: c.opts.TLS}
	if c.opts.Header != nil {
		header, err := c.opts.Header(ctx)
		if err != nil {
			return nil, fmt.Errorf("get credential: %w", err)
		}
		opts.Header = header
	}
	if node := h.header(); node != nil {
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

// refusedForGood reports whether trying again is of no use.
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

// setupError is a node that could not be made, or is not the one it should be.
type setupError struct{ err error }

func (e *setupError) Error() string { return e.err.Error() }
func (e *setupError) Unwrap() error { return e.err }
