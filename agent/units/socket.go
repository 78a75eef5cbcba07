package units

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/codermesh/codermesh/agent/socket"
	"github.com/codermesh/codermesh/internal/jsonline"
)

// SocketEnv names the socket to the programs of a workspace.
const SocketEnv = "CODER_AGENT_SOCKET_PATH"

const (
	maxRequest  = 64 << 10 // bytes
	maxAnswer   = 4 << 20  // bytes: the names of all units, twice
	maxRequests = 512      // at once
	// maxWait bounds a start that names no time.
	maxWait = 24 * time.Hour
)

// Request is one line to the socket.
type Request struct {
	Do     string   `json:"do"` // want, start, complete, status, ping
	Unit   string   `json:"unit,omitempty"`
	Wants  []string `json:"wants,omitempty"`
	WaitMS int64    `json:"wait_ms,omitempty"` // of start; 0: a day
}

// Server answers on a socket. Close it.
type Server struct {
	graph   *Graph
	log     *slog.Logger
	life    context.Context // ends with Close
	cancel  context.CancelFunc
	socket  *socket.Server
	readers sync.WaitGroup // Add is on the socket's handlers
}

// Serve opens the socket at path, in place of an old one, and answers on it.
func Serve(path string, graph *Graph, log *slog.Logger) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("open socket: %w", err), l.Close())
	}
	s := &Server{graph: graph, log: log}
	s.life, s.cancel = context.WithCancel(context.Background())
	s.socket = socket.Serve(l, maxRequests, s.serve)
	return s, nil
}

func (s *Server) serve(conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(jsonline.Timeout)) // fails only once it is closed
	r, err := ReadRequest(conn)
	var answer Unit
	if err == nil {
		_ = conn.SetReadDeadline(time.Time{})
		ctx, cancel := context.WithCancel(s.life)
		defer cancel()
		s.readers.Go(func() { // the client may give up
			_, _ = conn.Read(make([]byte, 1))
			cancel()
		})
		answer, err = s.answer(ctx, r)
	}
	if s.life.Err() != nil {
		return // the next agent answers
	}
	if err != nil {
		answer.Error = err.Error()
	}
	if err := jsonline.Write(conn, answer); err != nil {
		s.log.Debug("answer on the agent's socket", "err", err)
	}
}

// ReadRequest reads one line.
func ReadRequest(from io.Reader) (Request, error) {
	var r Request
	if err := jsonline.Read(from, maxRequest, &r); err != nil {
		return Request{}, err
	}
	return r, nil
}

func (s *Server) answer(ctx context.Context, r Request) (Unit, error) {
	var err error
	switch r.Do {
	case "ping":
		return Unit{}, nil
	case "want":
		err = s.graph.Want(r.Unit, r.Wants...)
	case "complete":
		err = s.graph.Complete(r.Unit)
	case "status":
		err = checkName(r.Unit)
	case "start":
		wait := time.Duration(r.WaitMS) * time.Millisecond
		if wait <= 0 || wait > maxWait {
			wait = maxWait
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		err = s.graph.Start(ctx, r.Unit)
	default:
		err = fmt.Errorf("this agent cannot %q: it may be older than the program that asks", r.Do)
	}
	return s.graph.Get(r.Unit), err
}

// Close ends the socket and all that wait on it; they may ask the next agent.
func (s *Server) Close() error {
	s.cancel()
	err := s.socket.Close()
	s.readers.Wait()
	return err
}

// ErrAway is returned where no agent answers on the socket now.
var ErrAway = errors.New("no agent answers")

// Ask sends one request and blocks for its answer. An error that the agent tells is no ErrAway.
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
