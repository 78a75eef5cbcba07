package sshd

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
)

type contextKey struct{}

// conn is one SSH connection.
type conn struct {
	server *Server
	stream transport
	plain  bool // the client speaks sshmux: the transport is encrypted and knows who it is
	long   bool // the client found the path worth several connections
	authed atomic.Bool
	done   chan struct{} // closed when the connection has ended

	// channels holds a slot per open channel, opening one per channel that the client was asked to open.
	channels, opening chan struct{}

	mu        sync.Mutex // guards the fields below
	ctx       ssh.Context
	ended     bool
	listeners map[string]net.Listener // of remote forwards, by what the client asked for
	wg        sync.WaitGroup          // goroutines of this connection; grows only while not ended
}

// transport is what a connection travels on. Its Close returns at once; ended is closed when it is.
type transport interface {
	net.Conn
	ended() <-chan struct{}
}

func newConn(s *Server, raw net.Conn, plain bool) *conn {
	c := &conn{
		server:   s,
		done:     make(chan struct{}),
		channels: make(chan struct{}, maxChannels), opening: make(chan struct{}, maxChannels),
		listeners: make(map[string]net.Listener),
	}
	_, c.long = raw.(interface{ Stripes() int })
	if c.plain = plain; plain {
		c.stream = muxTransport{raw}
	} else {
		c.stream = newStream(raw, c)
	}
	return c
}

func connOf(ctx ssh.Context) *conn { return ctx.Value(contextKey{}).(*conn) }

// attach ties the connection to its context before the handshake.
func attach(ctx ssh.Context, raw net.Conn) net.Conn {
	c := raw.(*stream).owner
	ctx.SetValue(contextKey{}, c)
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	return raw
}

// serve returns when the connection and everything it started have ended, except processes that outlive a hangup.
func (c *conn) serve() {
	timeout := time.AfterFunc(handshakeTimeout, func() {
		if !c.authed.Load() {
			c.server.log.Warn("ssh handshake timed out", "peer", c.stream.RemoteAddr())
			c.stream.Close()
		}
	})
	defer timeout.Stop()
	c.begin(c.keepAlive)

	if c.plain {
		c.serveMux()
	} else {
		c.server.ssh.HandleConn(c.stream)
	}

	c.stream.Close()
	c.mu.Lock()
	c.ended = true
	listeners := c.listeners
	c.listeners = nil
	c.mu.Unlock()
	for _, l := range listeners {
		l.Close()
	}
	close(c.done)
	c.wg.Wait()
	<-c.stream.ended()
}

// authenticated is called in the handshake, when the client has asked for the "none" method.
func (c *conn) authenticated() { c.authed.Store(true) }

// begin runs f on a goroutine that serve waits for. It returns false if the connection has ended.
func (c *conn) begin(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.wg.Go(f)
	return true
}

// peer is the established connection, nil before the end of the handshake.
func (c *conn) peer() *gossh.ServerConn {
	c.mu.Lock()
	ctx := c.ctx
	c.mu.Unlock()
	if ctx == nil {
		return nil
	}
	peer, _ := ctx.Value(ssh.ContextKeyConn).(*gossh.ServerConn)
	return peer
}

// keepAlive drops a client that left keepalives unanswered for keepaliveLimit.
func (c *conn) keepAlive() {
	ticker := time.NewTicker(keepaliveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.done:
			return
		}
		peer := c.peer()
		if peer == nil {
			continue
		}
		limit := time.AfterFunc(keepaliveLimit, func() {
			c.server.log.Info("ssh client is gone", "peer", c.stream.RemoteAddr())
			c.stream.Close()
		})
		_, _, err := peer.SendRequest("keepalive@openssh.com", true, nil)
		limit.Stop()
		if err != nil {
			return // the connection has ended
		}
	}
}

// channel makes a handler that holds one of the connection's slots.
func (s *Server) channel(serve func(*conn, *gossh.ServerConn, gossh.NewChannel)) ssh.ChannelHandler {
	return func(_ *ssh.Server, peer *gossh.ServerConn, channel gossh.NewChannel, ctx ssh.Context) {
		c := connOf(ctx)
		select {
		case c.channels <- struct{}{}:
		default:
			s.log.Warn("too many ssh channels", "peer", peer.RemoteAddr())
			_ = channel.Reject(gossh.ResourceShortage, "too many channels on this connection")
			return
		}
		ok := c.begin(func() {
			defer func() { <-c.channels }()
			serve(c, peer, channel)
		})
		if !ok {
			_ = channel.Reject(gossh.ConnectionFailed, "the connection is closing")
		}
	}
}

func (s *Server) request(serve func(*conn, *gossh.ServerConn, []byte) (bool, []byte)) ssh.RequestHandler {
	return func(ctx ssh.Context, _ *ssh.Server, req *gossh.Request) (bool, []byte) {
		peer := ctx.Value(ssh.ContextKeyConn).(*gossh.ServerConn)
		return serve(connOf(ctx), peer, req.Payload)
	}
}
