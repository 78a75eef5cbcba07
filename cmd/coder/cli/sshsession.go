package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/sshmux"
)

// dialSSH makes an SSH client of a mesh connection. There is no SSH handshake on it: the mesh has authenticated both ends and
// encrypts, since WireGuard delivers the connection from the key that the coordinator bound to the agent, and to nobody else.
func dialSSH(conn net.Conn) *ssh.Client {
	return sshmux.Client(conn, sshmux.Options{Wide: true})
}

// session runs a shell or a command and returns its exit status as an *ExitError, nil for 0.
func (a *app) session(ctx context.Context, t *target, conn net.Conn, command []string, o *sshOptions) error {
	client := dialSSH(conn)
	defer client.Close()
	a.logger().Debug("ssh connection stands")
	session, err := client.NewSession()
	if err != nil {
		return t.whyLost(ctx, fault.New(fault.Unavailable, "no session can be opened in the workspace: %w", err))
	}
	defer session.Close()
	var forwards sync.WaitGroup
	defer forwards.Wait()
	defer client.Close()
	if err := a.prepareSession(ctx, client, session, o, &forwards); err != nil {
		return err
	}
	watch, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := t.watch(watch, a.noteInSession); err != nil {
			stop(err)
			client.Close()
		}
	})
	status, err := a.runSession(ctx, client, session, command, o)
	stop(nil)
	watching.Wait()
	if cause := context.Cause(watch); err != nil && ctx.Err() == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	a.logger().Debug("ssh session ended", "status", status, "err", err)
	switch {
	case err == nil && status == 0:
		return nil
	case err == nil:
		return &ExitError{Code: status}
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, new(hinted)), errors.As(err, new(*ExitError)):
		return err // it has its reason
	}
	client.Close()
	if ended := client.Wait(); errors.Is(ended, sshmux.ErrVersion) {
		err = t.broken(ended)
	}
	return t.whyLost(ctx, err)
}

// noteInSession tells something beside a session's output. The terminal may be in raw mode.
func (a *app) noteInSession(text string) { fmt.Fprintf(a.streams().Err, "\r\n%s\r\n", text) }

// prepareSession asks for everything that a session may have besides a terminal.
func (a *app) prepareSession(ctx context.Context, client *ssh.Client, session *ssh.Session, o *sshOptions, forwards *sync.WaitGroup) error {
	for _, pair := range o.env {
		key, value, _ := strings.Cut(pair, "=")
		// No answer is waited for: a round trip per variable would be too much.
		if _, err := session.SendRequest("env", false, ssh.Marshal(struct{ Name, Value string }{key, value})); err != nil {
			return fault.New(fault.Unavailable, "the environment cannot be passed: %w", err)
		}
	}
	if o.forwardAgent {
		if err := forwardAgent(client, session, o.identityAgent); err != nil {
			return err
		}
	}
	for _, spec := range o.remoteForward {
		if err := a.remoteForward(ctx, client, spec, forwards); err != nil {
			return err
		}
	}
	return nil
}

// runSession runs the command, or a shell, on the standard streams.
func (a *app) runSession(ctx context.Context, client *ssh.Client, session *ssh.Session, command []string, o *sshOptions) (status int, err error) {
	s := a.streams()
	stdin, err := session.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("open session's input: %w", err)
	}
	session.Stdout, session.Stderr = s.Out, s.Err
	in := s.In
	lost := make(chan struct{})
	if o.tty || len(command) == 0 && s.InTTY {
		restore, err := a.terminal(ctx, session, o.tty)
		if err != nil {
			return 0, err
		}
		defer restore()
		if s.InTTY {
			in = &escape{r: s.In, lost: func() { close(lost) }}
		}
	}
	// The input does not wait until the program is known to run, which takes a round trip. Nothing waits for its end: a read of
	// standard input cannot be interrupted, and the process ends after the session.
	go func() {
		_, _ = io.Copy(stdin, in) // when the session is over, Wait below says how it ended
		stdin.Close()
	}()
	if len(command) == 0 {
		err = session.Shell()
	} else {
		err = session.Start(strings.Join(command, " "))
	}
	if err != nil {
		return 0, fault.New(fault.Unavailable, "the session did not start: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	select {
	case err = <-ended:
	case <-lost:
		client.Close()
		<-ended
		return 0, &ExitError{Code: exitSSH, Err: fault.New(fault.Unavailable, "the connection was ended by ~.")}
	case <-ctx.Done():
		// The remote command hears of the interrupt, and of the end of its input.
		_ = session.Signal(ssh.SIGINT)
		client.Close()
		<-ended
		return 0, ctx.Err()
	}
	return exitStatus(err)
}

// exitStatus tells how a session ended: its status, or why there is none.
func exitStatus(err error) (int, error) {
	if err == nil {
		return 0, nil
	}
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok {
		if status := exit.ExitStatus(); status != 0 {
			return status, nil
		}
		return exitSSH, nil // ended by a signal that has no number here
	}
	if _, ok := errors.AsType[*ssh.ExitMissingError](err); ok {
		return 0, fault.New(fault.Unavailable, "the connection was lost before the session ended")
	}
	return 0, fault.New(fault.Unavailable, "the session broke: %w", err)
}

// terminal asks for a remote terminal of the local one's size, and puts the local one into raw mode until restore.
func (a *app) terminal(ctx context.Context, session *ssh.Session, forced bool) (restore func(), err error) {
	width, height := 80, 24
	in, isFile := a.streams().In.(*os.File)
	local := isFile && term.IsTerminal(int(in.Fd()))
	if local {
		if w, h, err := term.GetSize(int(in.Fd())); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	name := os.Getenv("TERM")
	if name == "" {
		name = "xterm-256color"
	}
	// No answer is waited for; a server that has no terminals runs the command without one.
	if _, err := session.SendRequest("pty-req", false, ssh.Marshal(struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}{name, uint32(width), uint32(height), 0, 0, "\x00"})); err != nil {
		return nil, fault.New(fault.Unavailable, "no terminal can be asked for: %w", err)
	}
	if !local {
		return func() {}, nil
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("set terminal to raw mode: %w", err)
	}
	watch, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		watchSize(watch, in, func(w, h int) { _ = session.WindowChange(h, w) }) // the next change will try again
	})
	return func() {
		stop()
		wg.Wait()
		_ = term.Restore(int(in.Fd()), state) // the terminal has gone, or is as it was
	}, nil
}

// escape passes what is typed on, but for "~." at the start of a line: that calls lost, once, and ends the input.
type escape struct {
	r     io.Reader
	lost  func()
	state int // 0 inside a line, 1 at its start, 2 after a tilde there
	begun bool
}

func (e *escape) Read(b []byte) (int, error) {
	if len(b) < 2 { // one more than is read: a tilde may have been held back
		return 0, io.ErrShortBuffer
	}
	if !e.begun {
		e.begun, e.state = true, 1
	}
	n, err := e.r.Read(b[1:])
	out := b[:0]
	for _, c := range b[1 : 1+n] {
		switch {
		case e.state == 1 && c == '~':
			e.state = 2
			continue
		case e.state == 2 && c == '.':
			e.lost()
			return 0, io.EOF
		case e.state == 2 && c != '~': // "~~" is one tilde
			out = append(out, '~')
		}
		out = append(out, c)
		e.state = 0
		if c == '\r' || c == '\n' {
			e.state = 1
		}
	}
	return len(out), err
}
