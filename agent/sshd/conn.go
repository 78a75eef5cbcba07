package sshd

import (
	"net"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/sshmux"
)

// conn is one connection.
type conn struct {
	server *Server
	raw    net.Conn
	done   chan struct{} // closed when the connection has ended
	mux    *sshmux.Conn  // set before the first goroutine of this connection begins

	// channels holds a slot per served channel until its handler returns; opening holds one per channel that the server
	// asked the client to open.
	channels, opening chan struct{}

	agent struct {
		sync.Mutex // locked before mu
		forward    *agentForward
	}

	mu        sync.Mutex // guards the fields below
	ended     bool
	listeners map[string]net.Listener // of remote forwards, by what the client asked for
	wg        sync.WaitGroup          // goroutines of this connection; grows only while not ended
}

func newConn(s *Server, raw net.Conn) *conn {
	return &conn{
		server: s, raw: raw, done: make(chan struct{}), listeners: make(map[string]net.Listener),
		channels: make(chan struct{}, maxChannels), opening: make(chan struct{}, maxChannels),
	}
}

// serve serves the connection. It returns when the connection and everything it started have ended, except processes
// that outlive a hangup.
func (c *conn) serve() {
	muxSet := make(chan struct{}) // closed when c.mux is set: a request may come with its first packet
	c.mux = sshmux.New(c.raw, sshmux.Options{
		Server: true, MaxChannels: maxChannels,
		Global: func(name string, payload []byte) (bool, []byte) {
			<-muxSet
			return c.global(name, payload)
		},
	})
	close(muxSet)
	c.begin(c.keepAlive)
	for channel := range c.mux.Channels() {
		c.channel(channel)
	}
	c.server.log.Debug("ssh connection ended", "peer", c.raw.RemoteAddr(), "reason", c.mux.Wait())

	c.mu.Lock()
	c.ended = true
	listeners := c.listeners
	c.listeners = nil
	c.mu.Unlock()
	for _, l := range listeners {
		l.Close()
	}
	c.agent.Lock()
	if c.agent.forward != nil {
		c.agent.forward.close()
	}
	c.agent.Unlock()
	close(c.done)
	c.wg.Wait()
}

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

// keepAlive drops a client that sends nothing for handshakeTimeout, or leaves keepalives unanswered for keepaliveLimit.
func (c *conn) keepAlive() {
	timeout := time.NewTimer(handshakeTimeout)
	defer timeout.Stop()
	select {
	case <-c.mux.Ready():
	case <-timeout.C:
		c.server.log.Warn("ssh client sends nothing", "peer", c.raw.RemoteAddr())
		c.raw.Close()
		return
	case <-c.done:
		return
	}
	ticker := time.NewTicker(keepaliveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.done:
			return
		}
		limit := time.AfterFunc(keepaliveLimit, func() {
			c.server.log.Info("ssh client is gone", "peer", c.raw.RemoteAddr())
			c.raw.Close()
		})
		_, _, err := c.mux.SendRequest("keepalive@openssh.com", true, nil)
		limit.Stop()
		if err != nil {
			return // the connection has ended
		}
	}
}

// channel serves a channel that the client opens.
func (c *conn) channel(channel *sshmux.NewChannel) {
	var serve func(*sshmux.NewChannel)
	switch channel.Type() {
	case "session":
		serve = c.serveSession
	case "direct-tcpip":
		serve = c.serveDirectTCP
	case "direct-streamlocal@openssh.com":
		serve = c.serveDirectUnix
	default:
		_ = channel.Reject(gossh.UnknownChannelType, "unsupported channel type") // fails only with the connection
		return
	}
	select {
	case c.channels <- struct{}{}:
	default:
		c.server.log.Warn("too many ssh channels", "peer", c.raw.RemoteAddr())
		_ = channel.Reject(gossh.ResourceShortage, "too many channels on this connection")
		return
	}
	ok := c.begin(func() {
		defer func() { <-c.channels }()
		serve(channel)
	})
	if !ok {
		_ = channel.Reject(gossh.ConnectionFailed, "the connection is closing")
	}
}

// global handles a request about the whole connection.
func (c *conn) global(name string, payload []byte) (ok bool, answer []byte) {
	switch name {
	case "tcpip-forward":
		return c.forwardTCP(payload)
	case "cancel-tcpip-forward":
		return c.cancelForwardTCP(payload)
	case "streamlocal-forward@openssh.com":
		return c.forwardUnix(payload)
	case "cancel-streamlocal-forward@openssh.com":
		return c.cancelForwardUnix(payload)
	}
	return false, nil
}
