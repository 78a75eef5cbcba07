package agent

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// blocksLogin reports whether logins wait until a script has ended after a start.
func blocksLogin(m *agentpb.ManifestResponse, s *agentpb.Script) bool {
	return s.GetRunOnStart() && (m.GetStartBlocksLogin() || s.GetStartBlocksLogin())
}

// loginGate keeps new terminals waiting until the scripts of a build that block logins have ended. Sessions over SSH
// wait at the client, which can skip that.
type loginGate struct {
	mu      sync.Mutex // guards the fields below
	opened  uint64     // the newest build whose scripts block nothing any more
	changed chan struct{}
}

func newLoginGate() *loginGate { return &loginGate{changed: make(chan struct{})} }

// open lets the logins of a build in.
func (g *loginGate) open(incarnation uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if incarnation > g.opened {
		g.opened = incarnation
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// close ends all waiting.
func (g *loginGate) close() { g.open(math.MaxUint64) }

// closed returns a channel that is closed when the gate changes, or nil if the gate is open for a build.
func (g *loginGate) closed(incarnation uint64) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if incarnation <= g.opened {
		return nil
	}
	return g.changed
}

const waitingText = "Waiting for the start scripts that block logins. To skip this: coder ssh --wait=no"

// maxEarlyInput bounds what a viewer may send before its terminal opens, in bytes.
const maxEarlyInput = 64 << 10

// readUntil appends what arrives on a connection until a channel is closed.
func readUntil(conn net.Conn, data []byte, end <-chan struct{}) ([]byte, error) {
	done := make(chan struct{})
	var interrupter sync.WaitGroup
	interrupter.Go(func() {
		select {
		case <-end:
			_ = conn.SetReadDeadline(time.Unix(1, 0)) // a connection that is gone reports that to the reader
		case <-done:
		}
	})
	defer interrupter.Wait()
	defer close(done)
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		data = append(data, buf[:n]...)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return data, conn.SetReadDeadline(time.Time{})
		case err != nil:
			return nil, fmt.Errorf("viewer left: %w", err)
		case len(data) > maxEarlyInput:
			return nil, errors.New("too much was typed before the terminal opened")
		}
	}
}
