package coordinator_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// line is a connection with pings, as a websocket has them. Both ends are lines.
type line struct {
	in, out chan []byte
	shared  *lineState
}

type lineState struct {
	once   sync.Once
	closed chan struct{}
	mute   chan struct{} // closed: pings get no answer
}

func newLine() (ours, theirs *line) {
	a, b := make(chan []byte, 64), make(chan []byte, 64)
	shared := &lineState{closed: make(chan struct{}), mute: make(chan struct{})}
	return &line{a, b, shared}, &line{b, a, shared}
}

func (l *line) Read(ctx context.Context) ([]byte, error) {
	select {
	case data := <-l.in:
		return data, nil
	default:
	}
	select {
	case data := <-l.in:
		return data, nil
	case <-l.shared.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *line) Write(_ context.Context, data []byte) error {
	select {
	case l.out <- data:
		return nil
	case <-l.shared.closed:
		return io.ErrClosedPipe
	}
}

func (l *line) Close(websock.Status, string) error {
	l.shared.once.Do(func() { close(l.shared.closed) })
	return nil
}

func (l *line) Ping(ctx context.Context) error {
	select {
	case <-l.shared.closed:
		return io.ErrClosedPipe
	case <-l.shared.mute:
		<-ctx.Done()
		return ctx.Err()
	default:
		return nil
	}
}

// process is an agent's process: a client with a key of its own, over lines.
type process struct {
	*participant
	mu   sync.Mutex
	last *line
}

func runAgent(t *testing.T, s *coordinator.Server, k tailnet.PublicKey) *process {
	p := &process{}
	p.participant = join(t, protocol.KindAgent, k, client.Options{Dial: func(ctx context.Context, h protocol.Hello) (protocol.Conn, error) {
		ours, theirs := newLine()
		p.mu.Lock()
		p.last = theirs
		p.mu.Unlock()
		go s.Serve(context.WithoutCancel(ctx), theirs, agent(1), h)
		return ours, nil
	}})
	return p
}

func (p *process) line() *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// holder is the key of the process that is the agent now.
func holder(t *testing.T, c *participant) tailnet.PublicKey {
	t.Helper()
	synctest.Wait()
	info, _, _ := c.Peer(agent(1).ID)
	return info.Key
}

// TestTwoAgentsWithOneToken: the first process stays as long as it lives, then the second takes over, and neither gives up.
func TestTwoAgentsWithOneToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		first := runAgent(t, s, key(100))
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: s.Dialer(laptop(1))})
		if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		if s.Contested(agent(1).ID) {
			t.Error("one agent is contested")
		}
		second := runAgent(t, s, key(101))
		time.Sleep(time.Hour)
		if got := holder(t, c); got != key(100) || !first.Online() || second.Online() {
			t.Fatalf("after an hour the agent is %s, want the first process", got)
		}
		if !s.Contested(agent(1).ID) {
			t.Error("nothing shows that two agents use one token")
		}
		if second.Err() != nil {
			t.Fatalf("the second gave up: %v", second.Err())
		}

		first.Close() // its machine is stopped
		time.Sleep(time.Minute)
		if got := holder(t, c); got != key(101) || !second.Online() {
			t.Fatalf("after the end of the first the agent is %s, want the second process", got)
		}
		if s.Contested(agent(1).ID) {
			t.Error("the agent is contested though one process is left")
		}
	})
}

// TestSilentAgentIsReplaced: a connection whose machine vanished does not keep another out, and a machine that comes back
// does not give up for good.
func TestSilentAgentIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		first := runAgent(t, s, key(100))
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: s.Dialer(laptop(1))})
		if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		close(first.line().shared.mute)
		second := runAgent(t, s, key(101))
		if _, err := second.Welcome(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := holder(t, c); got != key(101) {
			t.Fatalf("the agent is %s, want the second process", got)
		}
		second.Close()
		time.Sleep(time.Minute)
		if got := holder(t, c); got != key(100) || first.Err() != nil {
			t.Fatalf("the agent is %s, want the first again (%v)", got, first.Err())
		}
	})
}

// TestRestartedAgentIsTakenAtOnce: the same process with a new connection, or a process whose predecessor was cut, need not wait.
func TestRestartedAgentIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		connectTo := func(k tailnet.PublicKey) (*line, chan error) {
			ours, theirs := newLine()
			ended := make(chan error, 1)
			go func() {
				ended <- s.Serve(t.Context(), theirs, agent(1), protocol.Hello{Version: protocol.Version, Key: k})
			}()
			return ours, ended
		}
		welcomed := func(l *line) {
			t.Helper()
			began := time.Now()
			data, err := l.Read(t.Context())
			m, decodeErr := protocol.DecodeServerMessage(data)
			if err = errors.Join(err, decodeErr); err != nil || m.Welcome == nil {
				t.Fatalf("got %s, %v, want a welcome", data, err)
			}
			if waited := time.Since(began); waited != 0 {
				t.Errorf("it was welcomed after %s of the bubble's time: something waited for a timer", waited)
			}
		}
		first, _ := connectTo(key(100))
		welcomed(first)
		again, _ := connectTo(key(100))
		welcomed(again)
		again.Close(0, "") // killed: the kernel closes the socket
		next, _ := connectTo(key(101))
		welcomed(next)
		duplicate, ended := connectTo(key(102))
		if err := <-ended; fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("a duplicate of a living agent: %v", err)
		}
		duplicate.Close(0, "")
		next.Close(0, "")
	})
}
