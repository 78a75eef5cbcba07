package sshd

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"

	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/sshmux"
)

// exitNotStarted is a shell's status for a command that it cannot run.
const exitNotStarted = 127

// session is one "session" channel: at most one program, started by a shell, exec or subsystem request.
type session struct {
	conn    *conn
	channel *sshmux.Channel
	log     *slog.Logger

	// Owned by the request loop until a program is started, then by the program's goroutine.
	env       *proc.Env
	envCount  int
	envBytes  int
	pty       *ptyRequest
	agentPath string // the socket of the client's SSH agent; "" without one
	x11       *x11Forward

	ended chan struct{} // closed when the client has closed the channel
	// asks the request loop to handle what has arrived; the loop closes the channel it receives
	inTurn chan chan<- struct{}

	mu      sync.Mutex // guards the fields below
	started bool
	process *process      // nil before start, and for sftp
	window  *windowChange // the latest one received before process was set
	gone    bool          // the client has closed the channel
	unread  bool          // the client no longer reads the program's output
}

func (c *conn) serveSession(newChannel *sshmux.NewChannel) {
	channel, err := newChannel.Accept()
	if err != nil {
		return // the connection has ended
	}
	sess := &session{
		conn: c, channel: channel, log: c.server.log.With("peer", c.raw.RemoteAddr()),
		env: proc.NewEnv(nil), ended: make(chan struct{}), inTurn: make(chan chan<- struct{}),
	}
	var wg sync.WaitGroup
	sess.serveRequests(channel.Requests(), &wg)
	close(sess.ended)
	sess.hangUp()
	wg.Wait()
	channel.Close()
	if sess.x11 != nil {
		sess.x11.close()
	}
}

// serveRequests handles requests until the client closes the channel.
func (s *session) serveRequests(requests <-chan *sshmux.Request, wg *sync.WaitGroup) {
	serve := func(req *sshmux.Request) {
		ok, run := s.handle(req)
		if err := req.Reply(ok); err != nil {
			s.log.Debug("cannot answer ssh request", "err", err)
		}
		switch {
		case run != nil:
			wg.Go(run)
		case !ok && !req.WantReply && startsProgram(req.Type):
			s.channel.Close() // a client that did not ask for an answer waits for the program's end
		}
	}
	for {
		select {
		case req, ok := <-requests:
			if !ok {
				return
			}
			serve(req)
		case done := <-s.inTurn:
			for n := len(requests); n > 0; n-- {
				serve(<-requests)
			}
			close(done)
		}
	}
}

func startsProgram(request string) bool {
	return request == "shell" || request == "exec" || request == "subsystem"
}

// input reads the client's terminal input. The connection queues requests and data separately; input delivers data
// after the requests that the client sent before it, so that a program that starts after a resize finds the new size.
type input struct{ s *session }

func (i input) Read(b []byte) (int, error) {
	n, err := i.s.channel.Read(b)
	if n == 0 {
		return n, err
	}
	done := make(chan struct{})
	select {
	case i.s.inTurn <- done:
		<-done
	case <-i.s.ended:
	}
	return n, err
}

// handle handles one request. run, if not nil, runs the program once the answer is sent.
func (s *session) handle(req *sshmux.Request) (ok bool, run func()) {
	switch req.Type {
	case "env":
		return s.setEnv(req.Payload), nil
	case "pty-req":
		return s.setPTY(req.Payload), nil
	case "window-change":
		return s.resize(req.Payload), nil
	case "signal":
		return s.signal(req.Payload), nil
	case "eow@openssh.com": // OpenSSH's PROTOCOL, section 2.1
		s.endOutput()
		return true, nil
	case "auth-agent-req@openssh.com":
		return s.forwardAgent(), nil
	case "x11-req":
		return s.forwardX11(req.Payload), nil
	case "shell":
		return s.start(func() { s.runProgram("") })
	case "exec":
		var payload struct{ Command string }
		if gossh.Unmarshal(req.Payload, &payload) != nil {
			return false, nil
		}
		return s.start(func() { s.runProgram(payload.Command) })
	case "subsystem":
		var payload struct{ Name string }
		if gossh.Unmarshal(req.Payload, &payload) != nil || payload.Name != "sftp" {
			return false, nil
		}
		return s.start(s.runSFTP)
	}
	return false, nil
}

// start lets a session run one program.
func (s *session) start(run func()) (bool, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return false, nil
	}
	s.started = true
	return true, run
}

func (s *session) isStarted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// hangUp hangs up the program because its client is gone.
func (s *session) hangUp() {
	s.mu.Lock()
	s.gone = true
	p := s.process
	s.mu.Unlock()
	if p != nil {
		p.hangUp()
	}
}

// endOutput makes the program notice that its client no longer reads its output, as at a closed pipe.
func (s *session) endOutput() {
	s.mu.Lock()
	s.unread = true
	p := s.process
	s.mu.Unlock()
	if p != nil {
		p.endOutput()
	}
}

// runProgram runs a command, or the login shell if it is empty, to its end.
func (s *session) runProgram(command string) {
	if count := s.conn.server.opts.Session; count != nil {
		defer count(s.conn.raw, s.env)()
	}
	env := s.conn.server.opts.Environment()
	spec := s.spec(env, command)
	if s.x11 != nil {
		s.prepareX11(spec.env)
	}
	if command == "" && s.pty != nil {
		_, _ = s.channel.Write(Banner(env.MOTDFile, env.User.Home, s.log))
	}
	p, err := startProcess(spec)
	if err != nil {
		s.fail(err)
		return
	}
	if err := proc.PreferAsVictim(p.pid); err != nil {
		s.log.Debug("cannot set memory preference", "err", err)
	}
	s.conn.server.reap(p)
	s.mu.Lock()
	s.process = p
	gone, unread := s.gone, s.unread
	if s.window != nil { // before any later one
		err = p.resize(*s.window)
	}
	s.mu.Unlock()
	if err != nil {
		s.log.Debug("cannot resize terminal", "err", err)
	}
	switch {
	case gone:
		p.hangUp()
	case unread:
		p.endOutput()
	}
	s.join(p)
	s.exit(p.status())
}

// join copies bytes until the program has ended and its output is sent, or the client is gone. Like any sshd it waits
// for the end of the output, so a background job that keeps the output open keeps the session open.
func (s *session) join(p *process) {
	// The input ends when the client closes the channel, which may be after the program's end.
	if !s.conn.begin(func() { s.copyInput(p) }) {
		p.hangUp()
	}
	var output sync.WaitGroup
	output.Go(func() { s.copyOutput(p, s.channel, p.stdout) })
	if p.stderr != nil {
		output.Go(func() { s.copyOutput(p, s.channel.Stderr(), p.stderr) })
	}
	select {
	case <-p.exited:
		p.drain()
		output.Wait()
	case <-s.ended:
		output.Wait()
	}
}

func (s *session) copyOutput(p *process, dst io.Writer, src io.Reader) {
	if _, err := netio.Copy(dst, src); err != nil && !p.isEnd(err) {
		p.hangUp() // the client reads no more
	}
}

func (s *session) copyInput(p *process) {
	if p.pty {
		_, _ = netio.Copy(p.stdin, input{s}) // a terminal's input ends only with the terminal
		return
	}
	_, err := netio.Copy(p.stdin, s.channel)
	p.stdin.Close()
	if err != nil {
		// The program no longer reads. Ask OpenSSH to stop sending, and discard data in transit, so that the window
		// stays open.
		_, _ = s.channel.SendRequest("eow@openssh.com", false, nil)
		_, _ = io.Copy(io.Discard, s.channel)
	}
}

// exit tells the client how the program ended.
func (s *session) exit(status exitStatus) {
	_ = s.channel.CloseWrite() // each of these fails only if the client is gone
	if status.signal != "" {
		_, _ = s.channel.SendRequest("exit-signal", false, gossh.Marshal(struct {
			Signal     string
			CoreDumped bool
			Message    string
			Language   string
		}{Signal: status.signal, CoreDumped: status.core}))
	}
	// Sent after a signal, too: OpenSSH knows only this request, and exits with its status.
	_, _ = s.channel.SendRequest("exit-status", false, gossh.Marshal(struct{ Code uint32 }{uint32(status.code)}))
	_ = s.channel.Close()
}

// fail shows the user why the session did not start.
func (s *session) fail(err error) {
	s.log.Warn("cannot start ssh session", "err", err)
	newline := "\n"
	if s.pty != nil {
		newline = "\r\n"
	}
	_, _ = fmt.Fprintf(s.channel.Stderr(), "codermesh agent: %v%s", err, newline)
	s.exit(exitStatus{code: exitNotStarted})
}

// spec returns what to start, with the variables that an sshd sets.
func (s *session) spec(env Environment, command string) processSpec {
	vars := proc.NewEnv(env.Env)
	for _, kv := range s.env.List() {
		name, value, _ := strings.Cut(kv, "=")
		vars.Set(name, value)
	}
	clientIP, clientPort := hostPort(s.conn.raw.RemoteAddr())
	serverIP, serverPort := hostPort(s.conn.raw.LocalAddr())
	vars.Set("SSH_CLIENT", clientIP+" "+clientPort+" "+serverPort)
	vars.Set("SSH_CONNECTION", clientIP+" "+clientPort+" "+serverIP+" "+serverPort)
	if s.agentPath != "" {
		vars.Set("SSH_AUTH_SOCK", s.agentPath)
	}
	spec := processSpec{shell: env.User.Shell, command: command, dir: env.Directory, home: env.User.Home, env: vars,
		pty: s.pty}
	if s.pty != nil && s.pty.Term != "" {
		vars.Set("TERM", s.pty.Term)
	}
	return spec
}

func hostPort(addr net.Addr) (host, port string) {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String(), "0"
	}
	return host, port
}

// exitStatus describes how a program ended.
type exitStatus struct {
	code   int    // 128 and the signal's number after a signal
	signal string // RFC 4254 name without SIG, empty after a plain exit
	core   bool
}
