// Package meshclient is a laptop's, or a region proxy's, ephemeral place in the mesh: a node with a fresh key, the
// coordinator's client that introduces it to agents, and connections to their ports. It knows agents by their ids only,
// and neither workspaces nor the server's API.
package meshclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// dialTimeout bounds a connection to a port of an agent that was introduced.
const dialTimeout = 30 * time.Second

// Options configure a Client.
type Options struct {
	URL        *url.URL     // the server's, required
	Header     http.Header  // credential and other headers of requests
	HTTPClient *http.Client // nil: one of its own
	TLS        *tls.Config  // for relays, and for a client of its own; nil: the system's trust
	RelayOnly  bool         // no direct paths
	// as [owner/]workspace[.agent]: the agent that will be introduced, if its name is known before its id; otherwise ""
	Agent  string
	Logger *slog.Logger  // nil: silent
	Kind   protocol.Kind // KindClient if empty
}

// Client is one process's place in the mesh. It is safe for concurrent use.
type Client struct {
	coordinator *client.Client
	ready       chan struct{} // closed when coordinator is set
	made        chan struct{} // closed when node and err are set
	node        *tailnet.Node
	err         error
	close       sync.Once
	parted      chan struct{} // closed when the node is closed
	parting     error         // the error of closing it; read after parted
	log         *slog.Logger
}

// Start begins to join and returns at once: the node and the coordinator connection start concurrently.
func Start(o Options) *Client {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	key := tailnet.NewPrivateKey()
	c := &Client{made: make(chan struct{}), ready: make(chan struct{}), log: o.Logger, parted: make(chan struct{})}
	go func() {
		defer close(c.made)
		c.node, c.err = tailnet.New(tailnet.Options{
			ID: tailnet.ClientID(key.Public()), Key: key, Logger: o.Logger, RelayOnly: o.RelayOnly, TLS: o.TLS,
			Revived: c.reconnect,
		})
		if c.err == nil {
			c.node.ExpectRelay(o.URL)
		}
	}()
	c.coordinator = client.New(client.Options{
		Logger: o.Logger, URL: o.URL, HTTPClient: o.HTTPClient, TLS: o.TLS,
		Header: func(context.Context) (http.Header, error) { return o.Header.Clone(), nil },
		Kind:   cmp.Or(o.Kind, protocol.KindClient), Key: key.Public(), Name: o.Agent,
		Early: func() client.Node {
			if node, err := c.Node(); err == nil {
				return node
			}
			return nil // NewNode returns the reason
		},
		NewNode: func(protocol.Welcome) (client.Node, error) {
			<-c.made
			if c.err != nil {
				return nil, c.err
			}
			return c.node, nil
		},
	})
	close(c.ready)
	c.coordinator.Start()
	return c
}

// reconnect reconnects to the coordinator. The node calls it when its network may have changed.
func (c *Client) reconnect() {
	select {
	case <-c.ready:
		c.coordinator.Reconnect()
	default:
	}
}

// Node returns the process's own node. It blocks until the node exists.
func (c *Client) Node() (*tailnet.Node, error) {
	<-c.made
	if c.err != nil {
		return nil, fmt.Errorf("start mesh node: %w", c.err)
	}
	return c.node, nil
}

// Joined blocks until the coordinator has sent the list of relays, or refuses (a fault), or ctx ends.
func (c *Client) Joined(ctx context.Context) (protocol.Welcome, error) {
	return c.coordinator.Welcome(ctx)
}

// Introduce blocks until the agent can be dialled. It waits for an agent that is not connected until ctx ends. An error
// with a code other than fault.Unavailable is final.
func (c *Client) Introduce(ctx context.Context, agent uuid.UUID) error {
	return c.coordinator.Subscribe(ctx, agent)
}

// Forget gives up an introduction.
func (c *Client) Forget(agent uuid.UUID) { c.coordinator.Unsubscribe(agent) }

// Ended reports whether the coordinator has refused this client for good.
func (c *Client) Ended() bool { return c.coordinator.Err() != nil }

// Key returns the key of the agent's current process, if the coordinator has announced it: another process has another
// key.
func (c *Client) Key(agent uuid.UUID) (tailnet.PublicKey, bool) {
	info, _, ok := c.coordinator.Peer(agent)
	return info.Key, ok
}

// Dial connects to a port of an agent that was introduced. network is "tcp" or "udp". It does not wait for a direct
// path.
func (c *Client) Dial(ctx context.Context, network string, agent uuid.UUID, port uint16) (net.Conn, error) {
	return c.dial(ctx, agent, port, func(ctx context.Context, node *tailnet.Node, addr netip.AddrPort) (net.Conn,
		error) {
		return node.Dial(ctx, network, addr)
	})
}

// dial calls open with a deadline, and explains its error.
func (c *Client) dial(
	ctx context.Context, agent uuid.UUID, port uint16,
	open func(context.Context, *tailnet.Node, netip.AddrPort) (net.Conn, error),
) (net.Conn, error) {
	node, err := c.Node()
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := open(limited, node, netip.AddrPortFrom(tailnet.Addr(agent), port))
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fault.New(fault.Unavailable, "the agent does not answer on the mesh: %w", err)
	}
	return nil, fmt.Errorf("dial agent port %d: %w", port, err)
}

// DialStream is like Dial for a TCP port, but does not wait if the agent supports streams: the first written data
// travels with the request, and errors of Dial are returned by Read and Write.
func (c *Client) DialStream(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error) {
	return c.dial(ctx, agent, port, func(ctx context.Context, node *tailnet.Node, addr netip.AddrPort) (net.Conn,
		error) {
		return node.Open(ctx, addr)
	})
}

// Ping measures the path to an agent that was introduced.
func (c *Client) Ping(ctx context.Context, agent uuid.UUID) (tailnet.Pong, error) {
	node, err := c.Node()
	if err != nil {
		return tailnet.Pong{}, err
	}
	return node.Ping(ctx, agent)
}

// farewell is how long the other ends of connections have to notice their end before the coordinator reports it.
const farewell = 10 * time.Millisecond

// Close leaves the mesh: it ends connections and sends bye to the coordinator. It is idempotent and takes at most a
// second if the server answers.
func (c *Client) Close() error {
	c.Leave()
	<-c.parted
	c.coordinator.Close()
	return c.parting
}

// Leave is like Close, for a process that is about to exit: it returns when everything has been sent, and waits for no
// answer.
func (c *Client) Leave() {
	c.close.Do(func() {
		<-c.made
		// The node gets a head start: once the coordinator receives bye, agents forget this peer and do not answer its
		// last packets. The head start is short, since without a bye they would keep half-open connections until they
		// consider the peer lost.
		go func() {
			defer close(c.parted)
			if c.node != nil {
				c.parting = c.node.Close()
			}
		}()
		lead := time.NewTimer(farewell)
		defer lead.Stop()
		select {
		case <-c.parted:
		case <-lead.C:
		}
		c.coordinator.Leave()
	})
}
