package units

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/codermesh/codermesh/v2/agent/internal/jsonline"
)

// SocketEnv names the socket to the programs of a workspace.
const SocketEnv = "CODER_AGENT_SOCKET_PATH"

const (
	maxRequest = 64 << 10 // bytes
	maxAnswer  = 4 << 20  // bytes: the names of all units, twice
	// MaxRequests bounds the requests that an agent serves at once.
	MaxRequests = 512
	// maxWait bounds a start that does not set a time.
	maxWait = 24 * time.Hour
)

// Request is one line to the socket.
type Request struct {
	Do     string   `json:"do"` // want, start, complete, status, list, ping
	Unit   string   `json:"unit,omitempty"`
	Wants  []string `json:"wants,omitempty"`
	WaitMS int64    `json:"wait_ms,omitempty"` // of start; 0: a day
}

// Serve answers one request on conn, which the caller closes after Serve has returned. A client that gives up, or the
// end of ctx, ends a start that waits. After the end of ctx Serve does not answer, because the next agent will.
func Serve(ctx context.Context, conn net.Conn, graph *Graph) error {
	_ = conn.SetReadDeadline(time.Now().Add(jsonline.Timeout)) // fails only once it is closed
	r, err := ReadRequest(conn)
	var answer Unit
	if err == nil {
		_ = conn.SetReadDeadline(time.Time{})
		call, cancel := context.WithCancel(ctx)
		defer cancel()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = conn.Read(make([]byte, 1))
			cancel()
		}()
		defer func() {
			_ = conn.SetReadDeadline(time.Unix(1, 0))
			<-gone
		}()
		answer, err = graph.answer(call, r)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		answer.Error = err.Error()
	}
	if err := jsonline.Write(conn, answer); err != nil {
		return fmt.Errorf("send answer: %w", err)
	}
	return nil
}

// ReadRequest reads one line.
func ReadRequest(from io.Reader) (Request, error) {
	var r Request
	if err := jsonline.Read(from, maxRequest, &r); err != nil {
		return Request{}, err
	}
	return r, nil
}

func (g *Graph) answer(ctx context.Context, r Request) (Unit, error) {
	var err error
	switch r.Do {
	case "ping":
		return Unit{}, nil
	case "list":
		all, err := g.All()
		return Unit{Units: all}, err
	case "want":
		err = g.Want(r.Unit, r.Wants...)
	case "complete":
		err = g.Complete(r.Unit)
	case "status":
		err = checkName(r.Unit)
	case "start":
		wait := time.Duration(r.WaitMS) * time.Millisecond
		if wait <= 0 || wait > maxWait {
			wait = maxWait
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		err = g.Start(ctx, r.Unit)
	default:
		err = fmt.Errorf("this agent cannot %q: it may be older than the program that asks", r.Do)
	}
	return g.Get(r.Unit), err
}

// ErrAway is returned if no agent answers on the socket.
var ErrAway = errors.New("no agent answers")

// Ask sends one request and blocks for its answer. An error in the answer is not an ErrAway.
func Ask(ctx context.Context, path string, r Request) (Unit, error) {
	var answer Unit
	err := jsonline.Ask(ctx, path, maxAnswer, r, &answer)
	switch {
	case err != nil && ctx.Err() != nil:
		return Unit{}, ctx.Err()
	case err != nil:
		return Unit{}, fmt.Errorf("%w: %w", ErrAway, err)
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}
