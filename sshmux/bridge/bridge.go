package bridge

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/sshmux"
)

const (
	// banner is what the client sees first, with the version. The package's comment says what clients make of it.
	banner = "SSH-2.0-OpenSSH_codermesh_"
	// maxFromAgent is how many channels opened by the agent are served at once.
	maxFromAgent = 256
	// flushTime is how long a client may take to read the remaining data at the end.
	flushTime = 300 * time.Millisecond
)

// Options configures a Bridge.
type Options struct {
	HostKey ssh.Signer   // required
	Logger  *slog.Logger // nil: silent
}

// Bridge is an SSH server for one client on a pipe. The caller must close it.
type Bridge struct {
	log       *slog.Logger
	local     *stream
	handshake chan struct{} // closed when the fields below are set
	conn      *ssh.ServerConn
	channels  <-chan ssh.NewChannel
	requests  <-chan *ssh.Request
	err       error
	passing   sync.WaitGroup // goroutines that Serve has started
}

// Start begins the handshake with the client at the other end of local and returns without waiting. The bridge takes
// ownership of local.
func Start(local io.ReadWriteCloser, opts Options) *Bridge {
	b := &Bridge{log: opts.Logger, local: newStream(local), handshake: make(chan struct{})}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	config := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: serverVersion()}
	config.AddHostKey(opts.HostKey)
	go func() {
		defer close(b.handshake)
		var client net.Conn
		if client, config.Ciphers, b.err = greet(b.local, config.ServerVersion); b.err == nil {
			b.conn, b.channels, b.requests, b.err = ssh.NewServerConn(client, config)
		}
	}()
	return b
}

// Close ends the connection to the client, after at most flushTime, and waits for the handshake to end. It is
// idempotent.
func (b *Bridge) Close() {
	b.local.Close()
	timer := time.NewTimer(flushTime)
	defer timer.Stop()
	select {
	case <-b.local.flushed:
	case <-timer.C: // the client does not read; the process ends
	}
	<-b.handshake
	if b.conn != nil {
		_ = b.conn.Wait() // the reason is already known
	}
	b.passing.Wait()
}

// ErrUnused means that the agent's connection ended before anything was forwarded to it. Serve may be called again with
// another one.
var ErrUnused = errors.New("nothing was sent to the agent")

// Serve forwards the client's channels to the agent at the other end of remote until either disconnects, and closes
// remote. It returns nil if the client disconnected, or the reason why the agent's connection ended, which is ErrUnused
// if another one can replace it. The client does not learn of that before Close: OpenSSH would end this process before
// its user has read the reason.
func (b *Bridge) Serve(remote net.Conn) error {
	agent := sshmux.New(remote, sshmux.Options{Wide: true})
	defer agent.Close()
	select {
	case <-b.handshake:
	case <-b.local.ended:
	case <-agent.Done():
	}
	switch {
	case closed(b.local.ended):
		return nil
	case closed(agent.Done()):
		return fmt.Errorf("%w: %w", ErrUnused, agent.Wait())
	}
	switch {
	case errors.Is(b.err, io.EOF), errors.Is(b.err, net.ErrClosed):
		return nil // the client has left
	case b.err != nil:
		return fmt.Errorf("ssh handshake: %w", b.err)
	}
	return newLink(b.log, b.conn, agent, &b.passing).run(b.channels, b.requests)
}

// link connects a client to an agent.
type link struct {
	log    *slog.Logger
	client *ssh.ServerConn
	agent  *sshmux.Conn
	global answers
	slots  chan struct{} // holds a slot per channel that the agent opened
	wg     *sync.WaitGroup
	joints struct {
		sync.Mutex
		open map[*joint]struct{}
	}

	asked struct { // kinds of channels that the client has requested
		tcp, unix, x11, agent atomic.Bool
	}
}

// newLink returns a link whose goroutines wg counts.
func newLink(log *slog.Logger, client *ssh.ServerConn, agent *sshmux.Conn, wg *sync.WaitGroup) *link {
	l := &link{log: log, client: client, agent: agent, slots: make(chan struct{}, maxFromAgent), wg: wg}
	l.global.over = agent.Done()
	l.joints.open = make(map[*joint]struct{})
	return l
}

// joins registers a joint until the caller calls the returned function.
func (l *link) joins(j *joint) (left func()) {
	l.joints.Lock()
	defer l.joints.Unlock()
	l.joints.open[j] = struct{}{}
	return func() {
		l.joints.Lock()
		defer l.joints.Unlock()
		delete(l.joints.open, j)
	}
}

// flush waits until the client has what the agent sent before it disconnected, for at most flushTime.
func (l *link) flush() {
	timer := time.NewTimer(flushTime)
	defer timer.Stop()
	l.joints.Lock()
	open := slices.Collect(maps.Keys(l.joints.open))
	l.joints.Unlock()
	for _, j := range open {
		select {
		case <-j.written:
		case <-timer.C:
			return // the client does not read
		}
	}
}

// run returns when either end has disconnected. Its goroutines end when both have.
func (l *link) run(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) error {
	wg := l.wg
	clientLeft, agentLeft := make(chan struct{}), make(chan error, 1)
	wg.Go(func() {
		defer close(clientLeft)
		_ = l.client.Wait() // the reason does not matter
	})
	wg.Go(func() { agentLeft <- l.agent.Wait() })
	wg.Go(func() { l.serveGlobals(requests) })
	wg.Go(func() {
		for channel := range channels {
			wg.Go(func() { l.fromClient(channel) })
		}
	})
	wg.Go(l.serveAgent)
	select {
	case <-clientLeft:
		l.agent.Close()
		wg.Wait()
		return nil
	case err := <-agentLeft:
		return err
	}
}

// serveAgent serves the channels that the agent opens, until it disconnects.
func (l *link) serveAgent() {
	for channel := range l.agent.Channels() {
		select {
		case l.slots <- struct{}{}:
			l.wg.Go(func() {
				defer func() { <-l.slots }()
				l.fromAgent(channel)
			})
		default:
			l.log.Warn("rejected channel: agent has too many open")
			_ = channel.Reject(ssh.ResourceShortage, "too many channels") // fails only if the connection does
		}
	}
}

// lost reports whether the agent's connection is over. The agent did not close channels that end with it.
func (l *link) lost() bool { return closed(l.agent.Done()) }

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// serveGlobals forwards the client's global requests.
func (l *link) serveGlobals(requests <-chan *ssh.Request) {
	stop := l.global.start()
	defer stop()
	for req := range requests {
		l.forwardGlobal(req)
	}
}

// forwardGlobal forwards one of them. Only one goroutine may call it.
func (l *link) forwardGlobal(req *ssh.Request) {
	switch req.Type {
	case "tcpip-forward":
		l.asked.tcp.Store(true)
	case "streamlocal-forward@openssh.com":
		l.asked.unix.Store(true)
	}
	if !req.WantReply {
		// fails only if the connection does or the request is too long
		_, _, _ = l.agent.SendRequest(req.Type, false, req.Payload)
		return
	}
	if err := l.agent.Ask(req.Type, req.Payload, l.global.expect(req)); err != nil {
		l.log.Debug("cannot forward global request", "type", req.Type, "err", err)
	}
}

// fromClient serves a channel that the client opens.
func (l *link) fromClient(channel ssh.NewChannel) {
	open := l.agent.OpenConfirmed
	if channel.ChannelType() == "session" {
		open = l.agent.Open
	}
	remote, err := open(channel.ChannelType(), channel.ExtraData())
	if err != nil && l.lost() {
		return
	}
	if err != nil {
		reason, message := rejection(err)
		_ = channel.Reject(reason, message) // fails only if the connection does
		return
	}
	local, requests, err := channel.Accept()
	if err != nil {
		remote.Close()
		drain(remote)
		return
	}
	l.join(local, requests, remote, channel.ChannelType() == "session")
}

// fromAgent serves a channel that the agent opens.
func (l *link) fromAgent(channel *sshmux.NewChannel) {
	if !l.mayOpen(channel.Type()) {
		l.log.Warn("rejected unrequested channel from agent", "type", channel.Type())
		_ = channel.Reject(ssh.Prohibited, "it was not asked for") // fails only if the connection does
		return
	}
	l.global.flush() // the client must first learn the port that the agent chose
	local, requests, err := l.client.OpenChannel(channel.Type(), channel.Data())
	if err != nil {
		reason, message := rejection(err)
		_ = channel.Reject(reason, message)
		return
	}
	remote, err := channel.Accept()
	if err != nil {
		local.Close()
		ssh.DiscardRequests(requests)
		return
	}
	l.join(local, requests, remote, false)
}

func (l *link) mayOpen(kind string) bool {
	switch kind {
	case "forwarded-tcpip":
		return l.asked.tcp.Load()
	case "forwarded-streamlocal@openssh.com":
		return l.asked.unix.Load()
	case "x11":
		return l.asked.x11.Load()
	case "auth-agent@openssh.com":
		return l.asked.agent.Load()
	}
	return false
}

// rejection returns the reason and message that tell one end why the other refuses a channel.
func rejection(err error) (ssh.RejectionReason, string) {
	if refused, ok := errors.AsType[*ssh.OpenChannelError](err); ok {
		return refused.Reason, refused.Message
	}
	return ssh.ConnectionFailed, err.Error()
}

// drain discards the requests of a closed channel.
func drain(channel *sshmux.Channel) {
	for range channel.Requests() {
	}
}
