// Package session runs what a user, or OpenSSH, does in a workspace that has been reached: shells and commands with
// their forwards, an SSH server on standard input and output, and terminals that last. It must not know the global
// flags.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/sshmux"
)

// dialSSH returns an SSH client on a mesh connection. There is no SSH handshake: the mesh has authenticated both ends
// and encrypts, since WireGuard delivers the connection to and from the key that the coordinator bound to the agent
// only.
func dialSSH(conn net.Conn) *ssh.Client {
	return sshmux.Client(conn, sshmux.Options{Wide: true})
}

// Session is the work of a user, or of OpenSSH, in a workspace that has been reached.
type Session struct {
	Target  *target.Target
	Streams *tty.Streams
	Logger  *slog.Logger
}

// Options configure a shell or a command.
type Options struct {
	TTY           bool     // allocate a terminal for a command, too
	Env           []string // NAME=value
	ForwardAgent  bool     // let the workspace use this machine's SSH agent
	IdentityAgent string   // the socket of that agent; "" means $SSH_AUTH_SOCK
	RemoteForward []string // specifications for forward.ParseRemote
	// Redial connects to the agent again after a connection that ended before the agent answered. nil means never.
	Redial func(context.Context) (net.Conn, error)
}

const (
	// earlyTries is how often a session begins anew after a connection that ended before the agent answered.
	earlyTries = 5
	earlyMin   = 100 * time.Millisecond
	earlyMax   = 2 * time.Second
)

// Run runs a shell or a command on conn, a connection to the agent's session port. A nonzero exit status is returned as
// an *exit.Error.
//
// If the connection ends before the agent answers, Run dials again, provided that nothing was sent that has an effect:
// the agent may have received it although no answer came back. A command that was sent has an effect, and so does input
// that was taken. The request for a shell alone does not: the agent ends a shell whose connection is over.
func (s *Session) Run(ctx context.Context, conn net.Conn, command []string, opts Options) error {
	in := newInput(s.Streams.In)
	defer in.close()
	retry := backoff.Backoff{Min: earlyMin, Max: earlyMax}
	for try := 1; ; try++ {
		sent, err := s.try(ctx, conn, in, command, opts)
		if sent || in.taken.Load() || !errors.Is(err, sshmux.ErrEarly) {
			return err
		}
		if opts.Redial == nil || try == earlyTries || retry.Wait(ctx) != nil {
			return err
		}
		s.Logger.Debug("connection ended early, dialing again", "try", try, "err", err)
		next, failed := opts.Redial(ctx)
		if failed != nil {
			return s.Target.WhyLost(ctx, failed)
		}
		conn = next
	}
}

// try runs a shell or a command on one connection, which it closes. It reports whether a command was sent.
func (s *Session) try(
	ctx context.Context, conn net.Conn, in *input, command []string, opts Options,
) (sent bool, _ error) {
	t := s.Target
	client := dialSSH(conn)
	defer client.Close()
	s.Logger.Debug("ssh connected")
	session, err := client.NewSession()
	if err != nil {
		return false, t.WhyLost(ctx,
			whyEnded(t, client, fault.New(fault.Unavailable, "cannot open a session in the workspace: %w", err)))
	}
	defer session.Close()
	var forwards sync.WaitGroup
	defer forwards.Wait()
	defer client.Close()
	if err := s.prepare(ctx, client, session, opts, &forwards); err != nil {
		return false, whyEnded(t, client, err)
	}
	watch, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := t.Watch(watch, s.note); err != nil {
			stop(err)
			client.Close()
		}
	})
	status, sent, err := s.stream(ctx, client, session, in, command, opts)
	stop(nil)
	watching.Wait()
	if cause := context.Cause(watch); err != nil && ctx.Err() == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	s.Logger.Debug("ssh session ended", "status", status, "err", err)
	switch {
	case err == nil && status == 0:
		return sent, nil
	case err == nil:
		return sent, &exit.Error{Code: status}
	case ctx.Err() != nil:
		return sent, ctx.Err()
	case explained(err):
		return sent, err
	}
	err = whyEnded(t, client, err)
	if sent && errors.Is(err, sshmux.ErrEarly) {
		err = fault.New(fault.Unavailable, "%w. The command may have started", err)
	}
	return sent, t.WhyLost(ctx, err)
}

// note prints a message beside the session's output. The terminal may be in raw mode.
func (s *Session) note(text string) { fmt.Fprintf(s.Streams.Err, "\r\n%s\r\n", text) }

// prepare requests everything that a session may have in addition to a terminal.
func (s *Session) prepare(
	ctx context.Context, client *ssh.Client, session *ssh.Session, opts Options, forwards *sync.WaitGroup,
) error {
	for _, pair := range opts.Env {
		key, value, _ := strings.Cut(pair, "=")
		// Do not wait for an answer, which would cost a round trip per variable.
		if _, err := session.SendRequest("env", false, ssh.Marshal(struct{ Name, Value string }{key, value})); err != nil {
			return fault.New(fault.Unavailable, "cannot pass the environment: %w", err)
		}
	}
	if opts.ForwardAgent {
		if err := forwardAgent(client, session, opts.IdentityAgent); err != nil {
			return err
		}
	}
	for _, spec := range opts.RemoteForward {
		if err := s.remoteForward(ctx, client, spec, forwards); err != nil {
			return err
		}
	}
	return nil
}

// stream runs the command, or a shell, on the standard streams. It reports whether a command was sent.
func (s *Session) stream(ctx context.Context, client *ssh.Client, session *ssh.Session, typed *input, command []string, opts Options) (
	status int, sent bool, err error,
) {
	stdin, err := session.StdinPipe()
	if err != nil {
		return 0, sent, fmt.Errorf("open session's input: %w", err)
	}
	session.Stdout, session.Stderr = tty.Raw(s.Streams.Out), tty.Raw(s.Streams.Err)
	over := make(chan struct{})
	defer close(over)
	in := typed.reader(over)
	lost := make(chan struct{})
	if opts.TTY || len(command) == 0 && s.Streams.InTTY {
		restore, err := s.terminal(ctx, session)
		if err != nil {
			return 0, sent, err
		}
		defer restore()
		if s.Streams.InTTY {
			in = &escape{r: in, lost: func() { close(lost) }}
		}
	}
	// The input is sent before the program is known to run, which saves a round trip. This goroutine ends with the try.
	go func() {
		_, _ = io.Copy(stdin, in) // Wait below reports how the session ended
		stdin.Close()
	}()
	if len(command) == 0 {
		err = session.Shell()
	} else {
		sent = true
		err = session.Start(strings.Join(command, " "))
	}
	if err != nil {
		return 0, sent, fault.New(fault.Unavailable, "the session did not start: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = session.Wait()
	}()
	select {
	case <-ended:
	case <-lost:
		client.Close()
		<-ended
		return 0, sent, &exit.Error{Code: exit.SSH, Err: fault.New(fault.Unavailable, "the connection was ended by ~.")}
	case <-ctx.Done():
		// Tell the remote command about the interrupt and the end of its input.
		_ = session.Signal(ssh.SIGINT)
		client.Close()
		<-ended
		return 0, sent, ctx.Err()
	}
	status, err = exitStatus(err)
	return status, sent, err
}

// exitStatus returns a session's exit status, or the reason why it has none.
func exitStatus(err error) (int, error) {
	if err == nil {
		return 0, nil
	}
	if ended, ok := errors.AsType[*ssh.ExitError](err); ok {
		if status := ended.ExitStatus(); status != 0 {
			return status, nil
		}
		return exit.SSH, nil // ended by a signal that has no number here
	}
	if _, ok := errors.AsType[*ssh.ExitMissingError](err); ok {
		return 0, fault.New(fault.Unavailable, "the connection was lost before the session ended")
	}
	return 0, fault.New(fault.Unavailable, "the session failed: %w", err)
}

// terminal requests a remote terminal of the local one's size, and puts the local one into raw mode until restore is
// called.
func (s *Session) terminal(ctx context.Context, session *ssh.Session) (restore func(), err error) {
	width, height := 80, 24
	in, isFile := s.Streams.In.(*os.File)
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
	// Do not wait for an answer: a server without terminals runs the command without one.
	if _, err := session.SendRequest("pty-req", false, ssh.Marshal(struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}{name, uint32(width), uint32(height), 0, 0, "\x00"})); err != nil {
		return nil, fault.New(fault.Unavailable, "cannot request a terminal: %w", err)
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
		watchSize(watch, in, func(w, h int) { _ = session.WindowChange(h, w) }) // the next change tries again
	})
	return func() {
		stop()
		wg.Wait()
		_ = term.Restore(int(in.Fd()), state) // fails only if the terminal is gone
	}, nil
}

// whyEnded closes a connection and explains why it ended, if that was before the agent answered. Otherwise it returns
// err, which is what the caller met.
func whyEnded(t *target.Target, client *ssh.Client, err error) error {
	client.Close()
	if reason := client.Wait(); errors.Is(reason, sshmux.ErrVersion) || errors.Is(reason, sshmux.ErrEarly) {
		return broken(t, reason)
	}
	return err
}

// broken explains the error that a connection to the target's agent ended with.
func broken(t *target.Target, err error) error {
	if errors.Is(err, sshmux.ErrVersion) {
		return exit.Try(fault.New(fault.Unavailable,
			"this program and the agent of %s speak different protocol versions: %w", t.Workspace.FullName(), err),
			"Restart the workspace or update coder: coder restart %s", shell.Word(t.Workspace.FullName())) // proven: the other version was read
	}
	return fault.New(fault.Unavailable, "the connection to %s was lost: %w", t.Workspace.FullName(), err)
}

// explained reports whether an error already has its reason, or is an exit status.
func explained(err error) bool {
	_, hinted := exit.Hint(err)
	return hinted || errors.As(err, new(*exit.Error))
}
