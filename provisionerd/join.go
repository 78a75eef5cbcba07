package provisionerd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"

	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// RunOptions configure a daemon that serves over the mesh.
type RunOptions struct {
	// Options are the daemon's. Run sets Dial.
	Options
	// URL is the server's base URL. Required.
	URL *url.URL
	// Header returns the headers of a connection to the coordinator: credential, name and tags. Required.
	Header func(context.Context) (http.Header, error)
	// HTTPClient and TLS are used for the coordinator's websocket, TLS also for relays. Nil means the defaults.
	HTTPClient *http.Client
	TLS        *tls.Config
	// RelayOnly turns off direct paths.
	RelayOnly bool
	// Interrupt makes a draining daemon interrupt its jobs when it is closed. Nil means never.
	Interrupt <-chan struct{}
	// OnStarted is called once, when the server has welcomed the daemon. Nil is not called.
	OnStarted func()
}

// Run joins the mesh with a new key and serves until ctx ends, and then drains. A successor serves until everything is
// delivered, and a daemon with Once until its job is. Run waits while the server is unreachable. It returns a fault if
// the coordinator or the server refuses the daemon for good.
func Run(ctx context.Context, opts RunOptions) (err error) {
	p, err := Join(opts)
	if err != nil {
		return err
	}
	var helpers sync.WaitGroup
	over := make(chan struct{})
	defer helpers.Wait()
	defer close(over)
	helpers.Go(func() {
		select {
		case <-p.Daemon.Started():
			if opts.OnStarted != nil {
				opts.OnStarted()
			}
		case <-over:
		}
	})
	delivered := make(chan struct{})
	if opts.Successor || opts.Once {
		over := p.Daemon.Delivered
		if opts.Once {
			over = p.Daemon.Served
		}
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		helpers.Go(func() {
			if over(waiting) {
				close(delivered)
			}
		})
	}
	select {
	case <-ctx.Done():
	case <-p.Done():
	case <-delivered:
	}
	stop, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if p.Err() != nil {
		cancel() // refused: no server waits for its jobs
	}
	helpers.Go(func() {
		select {
		case <-opts.Interrupt:
			cancel()
		case <-stop.Done():
		case <-over:
		}
	})
	reason := p.Err()
	return errors.Join(reason, p.Stop(stop))
}

// Participant is a daemon with its mesh node.
type Participant struct {
	Daemon *Daemon

	client *client.Client
	done   chan struct{} // closed when either the client or the daemon is done
	stop   chan struct{}
	once   sync.Once
	wait   sync.WaitGroup

	mu   sync.Mutex // guards node
	node *tailnet.Node
}

// Join starts a daemon and its mesh node, which dials the server until it answers. Join does not wait for that. The
// caller must call Stop.
func Join(opts RunOptions) (*Participant, error) {
	if opts.URL == nil || opts.Header == nil {
		return nil, fault.New(fault.Invalid, "The provisioner needs a server's URL and a credential")
	}
	key := tailnet.NewPrivateKey()
	p := &Participant{done: make(chan struct{}), stop: make(chan struct{})}
	p.client = client.New(client.Options{
		Logger: opts.Logger, URL: opts.URL, Header: opts.Header, HTTPClient: opts.HTTPClient, TLS: opts.TLS,
		Kind: protocol.KindProvisioner, Key: key.Public(),
		NewNode: func(w protocol.Welcome) (client.Node, error) {
			node, err := tailnet.New(tailnet.Options{ID: w.ID, Key: key, Logger: opts.Logger,
				RelayOnly: opts.RelayOnly})
			if err != nil {
				return nil, err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.node = node
			return node, nil
		},
		// Inbound stays unset: no peer may open connections to a provisioner.
	})
	daemon := opts.Options
	daemon.Dial = p.dial
	p.Daemon = New(daemon)
	if err := p.Daemon.Start(); err != nil {
		return nil, errors.Join(err, p.client.Close())
	}
	p.client.Start()
	p.wait.Go(func() {
		select {
		case <-p.client.Done():
		case <-p.Daemon.Done():
		case <-p.stop:
		}
		close(p.done)
	})
	return p, nil
}

// dial connects to the server that the coordinator has introduced.
func (p *Participant) dial(ctx context.Context) (net.Conn, error) {
	dialled := false
	conn, err := p.client.DialServer(ctx, func(ctx context.Context, server tailnet.NodeInfo) (net.Conn, error) {
		dialled = true
		p.mu.Lock()
		node := p.node
		p.mu.Unlock()
		if node == nil {
			return nil, errors.New("the mesh node is not made yet")
		}
		return node.Dial(ctx, "tcp", netip.AddrPortFrom(server.Addr(), meshport.ServerRPC))
	})
	if err != nil && !dialled {
		return nil, fmt.Errorf("find the server: %w: %w", errNotIntroduced, err)
	}
	return conn, err
}

// Done is closed when the server has refused the daemon for good, or Stop was called.
func (p *Participant) Done() <-chan struct{} { return p.done }

// Err returns the fault with which the server refused the daemon, or nil.
func (p *Participant) Err() error { return errors.Join(p.client.Err(), p.Daemon.Err()) }

// Stop drains the daemon (see Daemon.Stop), leaves the mesh, and waits for both. It is idempotent.
func (p *Participant) Stop(ctx context.Context) error {
	err := p.Daemon.Stop(ctx)
	p.once.Do(func() { close(p.stop) })
	p.wait.Wait()
	err = errors.Join(err, p.client.Close())
	p.mu.Lock()
	node := p.node
	p.mu.Unlock()
	if node != nil {
		err = errors.Join(err, node.Close())
	}
	return err
}
