package sshd

import (
	"context"
	"net"
	"sync"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/internal/sshmux"
)

// muxTransport is a connection that needs no buffers of ours: writes are taken by a goroutine already.
type muxTransport struct{ net.Conn }

var alreadyEnded = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (muxTransport) ended() <-chan struct{} { return alreadyEnded }

// serveMux is what the SSH library does for other connections, after their handshake.
func (c *conn) serveMux() {
	ctx := newMuxContext(c)
	defer ctx.cancel()
	server := c.server.ssh
	known := make(chan struct{}) // closed when ctx has the connection: a request may come with its first packet
	mux, channels, _ := sshmux.New(c.stream, sshmux.Options{
		Server: true, MaxChannels: maxChannels,
		Global: func(name string, payload []byte) (bool, []byte) {
			<-known
			if handle := server.RequestHandlers[name]; handle != nil {
				return handle(ctx, server, &gossh.Request{Type: name, Payload: payload})
			}
			return false, nil
		},
	})
	peer := &gossh.ServerConn{Conn: mux}
	ctx.SetValue(ssh.ContextKeyConn, peer)
	close(known)
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	c.authenticated()
	for channel := range channels {
		handle := server.ChannelHandlers[channel.ChannelType()]
		if handle == nil {
			_ = channel.Reject(gossh.UnknownChannelType, "unsupported channel type")
			continue
		}
		go handle(server, peer, channel, ctx)
	}
	c.server.log.Debug("session ended", "peer", mux.RemoteAddr(), "reason", mux.Wait())
}

// muxContext is the context that the SSH library's handlers expect.
type muxContext struct {
	context.Context
	sync.Mutex
	cancel context.CancelFunc
	conn   *conn

	values sync.Map
}

func newMuxContext(c *conn) *muxContext {
	ctx := &muxContext{conn: c}
	ctx.Context, ctx.cancel = context.WithCancel(c.server.run)
	ctx.SetValue(contextKey{}, c)
	return ctx
}

func (ctx *muxContext) Value(key any) any {
	if value, ok := ctx.values.Load(key); ok {
		return value
	}
	return ctx.Context.Value(key)
}

func (ctx *muxContext) SetValue(key, value any) { ctx.values.Store(key, value) }
func (ctx *muxContext) User() string            { return "" }
func (ctx *muxContext) SessionID() string       { return "" }
func (ctx *muxContext) ClientVersion() string   { return "" }
func (ctx *muxContext) ServerVersion() string   { return "" }
func (ctx *muxContext) RemoteAddr() net.Addr    { return ctx.conn.stream.RemoteAddr() }
func (ctx *muxContext) LocalAddr() net.Addr     { return ctx.conn.stream.LocalAddr() }
func (ctx *muxContext) Permissions() *ssh.Permissions {
	return &ssh.Permissions{Permissions: &gossh.Permissions{}}
}
