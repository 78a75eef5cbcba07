package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/sshmux"
	"github.com/codermesh/codermesh/sshmux/bridge"
)

// startBridge begins to speak SSH with OpenSSH on the standard streams. The handshake goes on while the workspace is being reached.
func (a *app) startBridge(o *sshOptions, host string) (*bridge.Bridge, error) {
	key, err := a.hostKey()
	if err != nil {
		return nil, err
	}
	if o.knownHosts != "" { // OpenSSH reads it once it has heard from us
		if err := rememberHost(o.knownHosts, host, key.PublicKey()); err != nil {
			return nil, err
		}
	}
	s := a.streams()
	widenPipe(s.In)
	widenPipe(s.Out)
	return bridge.Start(standardStreams{s.In, s.Out}, bridge.Options{HostKey: key, Logger: a.logger()}), nil
}

// standardStreams are standard input and output as one connection.
type standardStreams struct {
	io.Reader
	io.Writer
}

// Close closes what can be closed. A Read of standard input may go on until the process ends.
func (s standardStreams) Close() error {
	var err error
	for _, stream := range []any{s.Reader, s.Writer} {
		if closer, ok := stream.(io.Closer); ok {
			err = errors.Join(err, closer.Close())
		}
	}
	return err
}

// stdio passes OpenSSH's channels on to the workspace, until OpenSSH leaves or the workspace cannot be reached any more.
func (a *app) stdio(ctx context.Context, t *target, local *bridge.Bridge, conn net.Conn) error {
	watch, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := t.watch(watch, a.noteInSession); err != nil {
			stop(err)
		}
	})
	defer watching.Wait()
	defer stop(nil)
	defer context.AfterFunc(watch, func() { conn.Close() })()
	err := local.Serve(conn)
	cause := context.Cause(watch)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case cause != nil:
		return cause
	case err == nil:
		return nil // OpenSSH has left
	}
	return t.whyLost(ctx, t.broken(err))
}

// broken is the error for a connection to the target's agent that has ended with err.
func (t *target) broken(err error) error {
	if errors.Is(err, sshmux.ErrVersion) {
		return Try(fault.New(fault.Unavailable, "this program and the agent of %s do not understand each other: %w", fullName(t.workspace), err),
			"coder restart %s, or a newer coder", fullName(t.workspace))
	}
	return fault.New(fault.Unavailable, "the connection to %s was lost: %w", fullName(t.workspace), err)
}
