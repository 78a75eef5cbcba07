package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"golang.org/x/term"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// TerminalID returns the id of the terminal that --reconnect names, either by its id from the dashboard's URL or by a
// name that the user chose.
func TerminalID(agent uuid.UUID, name string) uuid.UUID {
	if id, err := uuid.Parse(name); err == nil {
		return id
	}
	return uuid.NewSHA1(agent, []byte(name))
}

// Attach shows a lasting terminal until it ends, or until the user leaves it running with ~. again is the command that
// reattaches to it.
func (s *Session) Attach(ctx context.Context, req ptywire.Request, again string) error {
	t := s.Target
	conn, err := t.Mesh.Dial(ctx, "tcp", t.Agent.ID, meshport.Terminal)
	if err != nil {
		return t.WhyLost(ctx, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	end, err := s.showRemote(ctx, conn, req)
	switch {
	case errors.Is(err, errLeft):
		fmt.Fprintf(s.Streams.Err, "The terminal keeps running. Reattach: %s\n", again)
		return nil
	case err != nil:
		return exit.Try(t.WhyLost(ctx,
			fault.New(fault.Unavailable, "the connection to the terminal was lost: %w", err)), "%s", again)
	case end.Reason != "":
		fmt.Fprintf(s.Streams.Err, "The terminal has ended: %s\n", end.Reason)
	}
	if end.Code != 0 {
		return &exit.Error{Code: end.Code}
	}
	return nil
}

var errLeft = errors.New("left with the escape")

// showRemote connects a remote terminal to the local one until it ends. The error is errLeft if the user left it with
// ~.
func (s *Session) showRemote(ctx context.Context, conn net.Conn, req ptywire.Request) (ptywire.End, error) {
	var send sync.Mutex // serializes the frames of two goroutines
	in := s.Streams.In
	var left atomic.Bool
	if stdin, ok := s.Streams.In.(*os.File); ok && term.IsTerminal(int(stdin.Fd())) {
		width, height, err := term.GetSize(int(stdin.Fd()))
		if err == nil {
			req.Size = ptywire.Size{Height: uint16(height), Width: uint16(width)}
		}
		before, err := term.MakeRaw(int(stdin.Fd()))
		if err != nil {
			return ptywire.End{}, fmt.Errorf("prepare terminal: %w", err)
		}
		defer func() { _ = term.Restore(int(stdin.Fd()), before) }()
		watch, stop := context.WithCancel(ctx)
		var watcher sync.WaitGroup
		watcher.Go(func() {
			watchSize(watch, stdin, func(width, height int) {
				send.Lock()
				defer send.Unlock()
				_ = ptywire.WriteJSON(conn, ptywire.Resize, ptywire.Size{
					Height: uint16(height), Width: uint16(width),
				}) // the reader knows
			})
		})
		defer watcher.Wait()
		defer stop()
		in = &escape{r: in, lost: func() { left.Store(true); conn.Close() }}
	}
	if err := ptywire.WriteJSON(conn, ptywire.Open, req); err != nil {
		return ptywire.End{}, err
	}
	go func() { // ends with the process: a read of standard input cannot be interrupted
		buf := make([]byte, 32<<10)
		for {
			n, err := in.Read(buf)
			if n > 0 {
				send.Lock()
				writeErr := ptywire.Write(conn, ptywire.Input, buf[:n])
				send.Unlock()
				if writeErr != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	end, err := showOutput(tty.Raw(s.Streams.Out), conn)
	if err != nil && left.Load() {
		err = errLeft
	}
	return end, err
}

func showOutput(out io.Writer, conn io.Reader) (ptywire.End, error) {
	for {
		kind, payload, err := ptywire.Read(conn)
		if err != nil {
			return ptywire.End{}, err
		}
		switch kind {
		case ptywire.Output:
			if _, err := out.Write(payload); err != nil {
				return ptywire.End{}, err
			}
		case ptywire.Exit:
			var end ptywire.End
			return end, json.Unmarshal(payload, &end)
		}
	}
}
