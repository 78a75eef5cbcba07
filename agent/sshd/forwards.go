package sshd

import (
	"context"
	"net"
	"strconv"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/sshmux"
)

const dialTimeout = 30 * time.Second

// directTCP is the data of direct-tcpip: RFC 4254, section 7.2.
type directTCP struct {
	Host       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

// directUnix is the data of direct-streamlocal: OpenSSH's PROTOCOL file, section 2.4.
type directUnix struct {
	Path      string
	Reserved  string
	Reserved2 uint32
}

func (c *conn) serveDirectTCP(channel *sshmux.NewChannel) {
	addr, ok := parseDirectTCP(channel.Data())
	if !ok {
		_ = channel.Reject(gossh.ConnectionFailed, "malformed forward")
		return
	}
	c.direct(channel, "tcp", addr)
}

func parseDirectTCP(payload []byte) (addr string, ok bool) {
	var req directTCP
	if gossh.Unmarshal(payload, &req) != nil || req.Port > 65535 || req.Host == "" {
		return "", false
	}
	return net.JoinHostPort(req.Host, strconv.Itoa(int(req.Port))), true
}

func (c *conn) serveDirectUnix(channel *sshmux.NewChannel) {
	var req directUnix
	if err := gossh.Unmarshal(channel.Data(), &req); err != nil {
		_ = channel.Reject(gossh.ConnectionFailed, "malformed forward")
		return
	}
	c.direct(channel, "unix", req.Path)
}

// direct joins a channel with a connection to addr that it dials from the workspace.
func (c *conn) direct(newChannel *sshmux.NewChannel, network, addr string) {
	ctx, cancel := context.WithTimeout(c.server.run, dialTimeout)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-c.done:
			cancel()
		case <-stop:
		}
	}()
	local, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		_ = newChannel.Reject(gossh.ConnectionFailed, err.Error())
		return
	}
	channel, err := newChannel.Accept()
	if err != nil {
		local.Close()
		return // the connection has ended
	}
	c.join(channel, local.(duplex))
}

type duplex interface {
	net.Conn
	CloseWrite() error
}

// join copies bytes both ways until both directions have ended.
func (c *conn) join(channel *sshmux.Channel, local duplex) {
	c.begin(func() {
		for req := range channel.Requests() {
			_ = req.Reply(false) // fails only with the connection
		}
	})
	netio.Pipe(channel, local)
}

// open asks the client to accept a connection to a remote forward, and serves it.
func (c *conn) open(kind string, extra []byte, local net.Conn) {
	channel, err := c.mux.Open(kind, extra)
	if err != nil {
		c.server.log.Debug("cannot open forwarded channel", "peer", c.raw.RemoteAddr(), "err", err)
		local.Close()
		return
	}
	c.join(channel, local.(duplex))
}

// acceptForwarded serves the connections of a remote forward's listener until it is closed. It closes those above the
// client's limit, because they must not accumulate for a client that never answers.
func (c *conn) acceptForwarded(l net.Listener, serve func(net.Conn)) {
	for {
		local, err := l.Accept()
		if err != nil {
			return // closed
		}
		select {
		case c.opening <- struct{}{}:
		default:
			c.server.log.Warn("too many forwarded connections", "peer", c.raw.RemoteAddr())
			local.Close()
			continue
		}
		ok := c.begin(func() {
			defer func() { <-c.opening }()
			serve(local)
		})
		if !ok {
			<-c.opening
			local.Close()
		}
	}
}
