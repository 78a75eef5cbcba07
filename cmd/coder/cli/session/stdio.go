package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/sshmux"
	"github.com/codermesh/codermesh/v2/sshmux/bridge"
)

// pipeSize is what a pipe on standard input or output is enlarged to, in bytes.
const pipeSize = 1 << 20

// StartBridge serves SSH to OpenSSH on the standard streams, with the host key of the configuration folder. It does not
// wait for the handshake. Unless knownHosts is "", it writes the key for host to that file first.
func StartBridge(
	streams *tty.Streams, logger *slog.Logger, dir config.Dir, knownHosts, host string,
) (*bridge.Bridge, error) {
	key, err := hostKey(dir, streams.Err)
	if err != nil {
		return nil, err
	}
	if knownHosts != "" { // before OpenSSH reads it
		if err := rememberHost(knownHosts, host, key.PublicKey()); err != nil {
			return nil, err
		}
	}
	out := tty.Raw(streams.Out)
	for _, stream := range []any{streams.In, out} {
		if f, ok := stream.(*os.File); ok {
			netio.GrowPipe(f, pipeSize)
		}
	}
	return bridge.Start(standardStreams{streams.In, out}, bridge.Options{HostKey: key, Logger: logger}), nil
}

// standardStreams combines standard input and output into one connection.
type standardStreams struct {
	io.Reader
	io.Writer
}

// Close closes what can be closed. A Read of standard input may block until the process exits.
func (s standardStreams) Close() error {
	var err error
	for _, stream := range []any{s.Reader, s.Writer} {
		if closer, ok := stream.(io.Closer); ok {
			err = errors.Join(err, closer.Close())
		}
	}
	return err
}

// Stdio passes OpenSSH's channels on to the workspace until OpenSSH disconnects or the workspace can no longer be
// reached. A connection that ends before anything was sent on it is replaced with what redial returns.
func (s *Session) Stdio(
	ctx context.Context, local *bridge.Bridge, conn net.Conn, redial func(context.Context) (net.Conn, error),
) error {
	t := s.Target
	watch, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := t.Watch(watch, s.note); err != nil {
			stop(err)
		}
	})
	defer watching.Wait()
	defer stop(nil)
	retry := backoff.Backoff{Min: earlyMin, Max: earlyMax}
	err := serveBridge(watch, local, conn)
	for try := 1; errors.Is(err, bridge.ErrUnused) && errors.Is(err, sshmux.ErrEarly) && try < earlyTries && retry.Wait(watch) == nil; try++ {
		s.Logger.Debug("connection ended early, dialing again", "try", try, "err", err)
		if conn, err = redial(watch); err == nil {
			err = serveBridge(watch, local, conn)
		}
	}
	cause := context.Cause(watch)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case cause != nil:
		return cause
	case err == nil:
		return nil // OpenSSH has disconnected
	}
	return t.WhyLost(ctx, broken(t, err))
}

// serveBridge is local.Serve, which ends with ctx.
func serveBridge(ctx context.Context, local *bridge.Bridge, conn net.Conn) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return local.Serve(conn)
}
