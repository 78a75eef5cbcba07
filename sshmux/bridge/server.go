package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	glider "github.com/gliderlabs/ssh"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/connset"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/sshmux"
)

const (
	// loginTime is how long a client may take to prove who it is. OpenSSH's sshd allows two minutes, for people who
	// type passwords.
	loginTime = 30 * time.Second
	// maxStarting and maxStartingFrom are how many clients may be signing in at once, in all and from one address, or
	// one network of IPv6: those that send nothing must not keep others out.
	maxStarting, maxStartingFrom = 1000, 100
	// maxFromClient is how many channels a client may have open at once: more than an agent serves, which refuses with
	// its own words.
	maxFromClient = 512
	// notReached is the exit status of sessions whose agent cannot be reached: OpenSSH's own for a connection that
	// failed.
	notReached = 255
)

// ServerOptions configures a Server.
type ServerOptions struct {
	// HostKeys returns what a client that comes may know the server by: at least one key, one of each type. A key
	// with a certificate is another type.
	HostKeys func(ctx context.Context) []ssh.Signer
	Logger   *slog.Logger // nil: silent
	// Limit is how many clients may be connected at once. 0 means no limit.
	Limit int
	// Keys decides who may sign in. If it is nil, everybody may: the network has proven who the clients are.
	Keys Keys
	// Dial connects to the session port of the agent that a client asks for, once for each client. Clients are told the
	// error's text, and what say is called with meanwhile, a line each. ctx ends with the client.
	Dial func(ctx context.Context, client *ssh.ServerConn, say func(line string)) (net.Conn, error)
	// Jump connects to the SSH server that a client names as a destination, as OpenSSH's -J does, if ok. All other
	// destinations, and all if Jump is nil, are the agent's: it connects to them.
	Jump func(ctx context.Context, client *ssh.ServerConn, host string, port uint32) (conn net.Conn, ok bool, err error)
}

// Keys are the keys of those who may sign in.
type Keys interface {
	// Known reports whether the key could sign someone in. A client that asks need not have the key. It is not called
	// while many keys from the client's network have signed no one in.
	Known(ctx context.Context, key ssh.PublicKey) bool
	// SignIn returns what is known of a client that has proven to have the key: Dial finds it in the connection's
	// Permissions. Clients are not told the error.
	SignIn(client ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error)
}

// Server is an SSH server for clients of a network. It forwards the channels of each client to the agent that its
// options dial. Make one with NewServer. It is safe for concurrent use.
type Server struct {
	opts  ServerOptions
	log   *slog.Logger
	ssh   *glider.Server // serves the SSH protocol of a connection; listeners and limits are conns'
	conns *connset.Set
	tries attempts

	mu       sync.Mutex           // guards the fields below
	starting int                  // clients that are signing in
	from     map[netip.Prefix]int // the same, by network
}

// NewServer returns a server without listeners. The caller must close it.
func NewServer(opts ServerOptions) *Server {
	s := &Server{opts: opts, log: opts.Logger, from: make(map[netip.Prefix]int)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.tries = attempts{log: s.log, networks: make(map[netip.Prefix]tally)}
	s.conns = connset.New(connset.Options{Limit: opts.Limit, Refused: func(conn net.Conn) {
		s.log.Warn("too many ssh clients", "peer", conn.RemoteAddr())
	}})
	s.ssh = &glider.Server{
		Version: strings.TrimPrefix(serverVersion(), "SSH-2.0-"),
		ConnCallback: func(ctx glider.Context, conn net.Conn) net.Conn {
			ctx.SetValue(visitKey{}, conn.(*visit))
			return conn
		},
		ServerConfigCallback: s.config,
		ChannelHandlers: map[string]glider.ChannelHandler{"default": func(_ *glider.Server, _ *ssh.ServerConn, channel ssh.NewChannel, ctx glider.Context) {
			visitOf(ctx).channel(ctx, channel)
		}},
		RequestHandlers: map[string]glider.RequestHandler{"default": func(ctx glider.Context, _ *glider.Server, req *ssh.Request) (bool, []byte) {
			return visitOf(ctx).request(ctx, req), nil
		}},
	}
	if opts.Keys != nil {
		s.ssh.PublicKeyHandler = func(ctx glider.Context, key glider.PublicKey) bool { return visitOf(ctx).mayProve(ctx, key) }
	}
	return s
}

func serverVersion() string {
	return banner + strings.ReplaceAll(buildinfo.Version(), "-", "_")
}

// config returns what the library has no option for. Only a key that the client has proven to have signs it in: the
// library's handler also sees those that it just asks about.
func (s *Server) config(ctx glider.Context) *ssh.ServerConfig {
	v := visitOf(ctx)
	config := &ssh.ServerConfig{AuthLogCallback: func(_ ssh.ConnMetadata, _ string, err error) {
		if err == nil {
			v.started()
		}
	}}
	for _, key := range s.opts.HostKeys(ctx) {
		config.AddHostKey(key)
	}
	if s.opts.Keys != nil {
		config.VerifiedPublicKeyCallback = func(client ssh.ConnMetadata, key ssh.PublicKey, _ *ssh.Permissions, _ string) (*ssh.Permissions, error) {
			return v.signIn(client, key)
		}
	}
	return config
}

// Serve accepts clients from l until l or the server is closed, and then returns nil. It closes l.
func (s *Server) Serve(l net.Listener) error {
	if err := s.conns.Serve(l, s.serve); err != nil {
		return fmt.Errorf("accept ssh client: %w", err)
	}
	return nil
}

// Close ends every connection, and waits for them.
func (s *Server) Close() error { return s.conns.Close() }

func (s *Server) serve(raw net.Conn) {
	network := networkOf(raw.RemoteAddr())
	started, ok := s.start(network)
	if !ok {
		s.log.Debug("too many ssh clients are signing in", "peer", raw.RemoteAddr())
		return
	}
	v := &visit{Conn: raw, server: s, network: network, slots: make(chan struct{}, maxFromClient),
		waiting: make(map[ssh.Channel]struct{})}
	grace := time.AfterFunc(loginTime, func() {
		s.log.Debug("ssh client does not sign in", "peer", raw.RemoteAddr())
		raw.Close()
	})
	v.started = sync.OnceFunc(func() {
		grace.Stop()
		started()
	})
	s.ssh.HandleConn(v)
	v.started()
	v.end()
}

// start counts a client that is signing in until started is called, or returns false if too many are.
func (s *Server) start(network netip.Prefix) (started func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting >= maxStarting || s.from[network] >= maxStartingFrom {
		return nil, false
	}
	s.starting++
	s.from[network]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.starting--
		if s.from[network]--; s.from[network] == 0 {
			delete(s.from, network)
		}
	}, true
}

// networkOf returns the network that one client has: an address of IPv4, the first 64 bits of one of IPv6.
func networkOf(addr net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap()
	network, _ := ip.Prefix(min(64, ip.BitLen())) // fails only for more bits than there are
	return network
}

// visit is a client's connection.
type visit struct {
	net.Conn
	server  *Server
	network netip.Prefix
	started func()        // called when the client has signed in
	slots   chan struct{} // holds a slot per channel that the client opened
	refused int           // keys that count against the network; only the library's handshake uses it

	dial sync.Mutex // held while the agent is dialed
	link *link      // guarded by dial
	stop func()     // waits for the answers to global requests; guarded by dial

	mu      sync.Mutex // guards the fields below
	ended   bool
	waiting map[ssh.Channel]struct{} // sessions that wait for the agent
	wg      sync.WaitGroup           // goroutines of this visit; grows only while not ended
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit { return ctx.Value(visitKey{}).(*visit) }

// mayProve reports whether a client that offers a key may prove to have it.
func (v *visit) mayProve(ctx context.Context, key ssh.PublicKey) bool {
	if v.server.tries.exceeded(v.network) || v.server.opts.Keys.Known(ctx, key) {
		return true
	}
	v.refuse()
	return false
}

// signIn signs a client in with a key that it has proven to have.
func (v *visit) signIn(client ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	permissions, err := v.server.opts.Keys.SignIn(client, key)
	if err != nil {
		v.refuse()
		return nil, err
	}
	v.server.tries.takeBack(v.network, v.refused)
	return permissions, nil
}

// refuse counts a key against the client's network.
func (v *visit) refuse() {
	if v.server.tries.refuse(v.network) {
		v.refused++
	}
}

// begin counts a goroutine that end waits for, unless the visit has ended.
func (v *visit) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.ended {
		v.wg.Add(1)
	}
	return !v.ended
}

// over reports whether the visit has ended.
func (v *visit) over() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ended
}

// end ends the connection to the agent, and waits for everything that the visit began.
func (v *visit) end() {
	v.mu.Lock()
	v.ended = true
	v.mu.Unlock()
	v.dial.Lock()
	l, stop := v.link, v.stop
	v.dial.Unlock()
	if l != nil {
		l.agent.Close()
		stop()
	}
	v.wg.Wait()
}

// reach returns the link to the agent, and dials if there is none yet. The next call tries again if that fails: a
// client may stay connected.
func (v *visit) reach(ctx glider.Context) (*link, error) {
	v.dial.Lock()
	defer v.dial.Unlock()
	if v.link != nil {
		return v.link, nil
	}
	client, ok := ctx.Value(glider.ContextKeyConn).(*ssh.ServerConn)
	if !ok {
		return nil, errors.New("the client has not signed in")
	}
	raw, err := v.server.opts.Dial(ctx, client, v.say)
	if err != nil {
		return nil, err
	}
	if v.over() { // and end has looked for a link, or waits for this call to do so
		raw.Close()
		return nil, errors.New("the client has left")
	}
	agent := sshmux.New(raw, sshmux.Options{Wide: true})
	l := newLink(v.server.log, client, agent, &v.wg)
	v.link, v.stop = l, l.global.start()
	v.wg.Go(func() {
		l.serveAgent()
		if err := agent.Wait(); err != nil {
			v.server.log.Debug("the agent's connection ended", "peer", v.RemoteAddr(), "reason", err)
		}
		l.flush()
		_ = client.Close() // it may have left already
	})
	return l, nil
}

// channel serves a channel that the client opens.
func (v *visit) channel(ctx glider.Context, channel ssh.NewChannel) {
	if !v.begin() {
		return
	}
	defer v.wg.Done()
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	default:
		// fails only if the connection does
		_ = channel.Reject(ssh.ResourceShortage, "too many channels on this connection")
		return
	}
	if channel.ChannelType() == "direct-tcpip" && v.jump(ctx, channel) {
		return
	}
	if channel.ChannelType() == "session" {
		v.session(ctx, channel)
		return
	}
	l, err := v.reach(ctx)
	if err != nil {
		_ = channel.Reject(ssh.ConnectionFailed, err.Error()) // fails only if the connection does
		return
	}
	l.fromClient(channel)
}

// session serves a session. The client has it before the agent is reached, so that it can be told what it waits for,
// and why there is no agent.
func (v *visit) session(ctx glider.Context, newChannel ssh.NewChannel) {
	local, requests, err := newChannel.Accept()
	if err != nil {
		return // the client has left
	}
	v.mu.Lock()
	v.waiting[local] = struct{}{}
	v.mu.Unlock()
	l, err := v.reach(ctx)
	v.mu.Lock()
	delete(v.waiting, local)
	v.mu.Unlock()
	var remote *sshmux.Channel
	if err == nil {
		remote, err = l.agent.Open(newChannel.ChannelType(), newChannel.ExtraData())
	}
	if err != nil {
		explain(local, requests, err)
		return
	}
	l.join(local, requests, remote, true)
}

// say shows a line to the sessions that wait for the agent.
func (v *visit) say(line string) {
	v.mu.Lock()
	waiting := slices.Collect(maps.Keys(v.waiting))
	v.mu.Unlock()
	for _, channel := range waiting {
		_, _ = fmt.Fprintf(channel.Stderr(), "%s\r\n", line) // fails only if the client has left
	}
}

// jump serves a channel to another SSH server, if that is what it is.
func (v *visit) jump(ctx glider.Context, newChannel ssh.NewChannel) bool {
	var to struct { // RFC 4254, section 7.2
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	client, signedIn := ctx.Value(glider.ContextKeyConn).(*ssh.ServerConn)
	if v.server.opts.Jump == nil || !signedIn || ssh.Unmarshal(newChannel.ExtraData(), &to) != nil {
		return false
	}
	conn, ok, err := v.server.opts.Jump(ctx, client, to.Host, to.Port)
	if !ok {
		return false
	}
	if err != nil {
		_ = newChannel.Reject(ssh.ConnectionFailed, err.Error()) // fails only if the connection does
		return true
	}
	defer conn.Close()
	channel, requests, err := newChannel.Accept()
	if err != nil {
		return true // the client has left
	}
	v.wg.Go(func() { ssh.DiscardRequests(requests) })
	netio.Pipe(channel, conn)
	return true
}

// explain says in a session why there is no agent for it: OpenSSH shows a rejection's text among words that are not for
// people.
func explain(channel ssh.Channel, requests <-chan *ssh.Request, reason error) {
	defer channel.Close()
	for req := range requests {
		begins := req.Type == "shell" || req.Type == "exec" || req.Type == "subsystem"
		// this and what follows fail only if the client has left
		_ = req.Reply(begins || req.Type == "pty-req" || req.Type == "env", nil)
		if begins {
			_, _ = fmt.Fprintf(channel.Stderr(), "%s\r\n", strings.ReplaceAll(reason.Error(), "\n", "\r\n"))
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{notReached}))
			return
		}
	}
}

// request forwards a request about the connection, and reports false if there is no agent. The library calls it for one
// request after the other, and would answer when it returns: the agent's answer comes later, as the link writes it.
func (v *visit) request(ctx glider.Context, req *ssh.Request) bool {
	if !v.begin() {
		return false
	}
	defer v.wg.Done()
	var l *link
	switch req.Type {
	case "tcpip-forward", "streamlocal-forward@openssh.com":
		l, _ = v.reach(ctx) // OpenSSH has no words for the reason
	default: // such as a keepalive: no agent is dialed, or waited for
		if v.dial.TryLock() {
			l = v.link
			v.dial.Unlock()
		}
	}
	if l == nil {
		return false
	}
	forwarded := *req
	req.WantReply = false
	l.forwardGlobal(&forwarded)
	return false
}
