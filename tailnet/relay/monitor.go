package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"tailscale.com/derp"
	"tailscale.com/derp/derpserver"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/internal/notify"
)

// monitor is a privileged client of the relay in the same process. The relay reports every connected client to it, and
// it ends the connections of clients that are not, or no longer, admitted. Together with the check before a connection,
// this leaves no gap through which a revoked key could connect.
type monitor struct {
	relay  *derpserver.Server
	mesh   key.DERPMesh
	secret key.NodePrivate
	check  func(key.NodePublic) bool
	log    *slog.Logger
	cancel context.CancelFunc

	mu        sync.Mutex
	client    *derp.Client
	connected map[key.NodePublic]int // number of connections by client key
	change    notify.Broadcast       // of connected

	running sync.WaitGroup
}

func startMonitor(
	relay *derpserver.Server, mesh key.DERPMesh, check func(key.NodePublic) bool, log *slog.Logger,
) (*monitor, error) {
	m := &monitor{
		relay: relay, mesh: mesh, secret: key.NewNode(), check: check, log: log,
		connected: make(map[key.NodePublic]int),
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	ours, theirs := net.Pipe()
	m.running.Go(func() {
		relay.Accept(ctx, theirs, bufio.NewReadWriter(bufio.NewReader(theirs), bufio.NewWriter(theirs)), "127.0.0.1:0")
	})
	client, err := m.connect(ours)
	if err != nil {
		m.cancel()
		ours.Close()
		m.running.Wait()
		return nil, fmt.Errorf("start relay monitor: %w", err)
	}
	m.client = client
	m.running.Go(func() {
		defer ours.Close()
		m.watch(ctx, client)
	})
	// watch must already run: a pipe has no buffer, so the relay blocks until its first message is read.
	if err := client.WatchConnectionChanges(); err != nil {
		m.cancel()
		ours.Close()
		m.running.Wait()
		return nil, fmt.Errorf("start relay monitor: %w", err)
	}
	return m, nil
}

func (m *monitor) connect(c net.Conn) (*derp.Client, error) {
	logf := func(format string, args ...any) { m.log.Debug("relay monitor", "line", fmt.Sprintf(format, args...)) }
	c.SetDeadline(time.Now().Add(10 * time.Second))
	defer c.SetDeadline(time.Time{})
	rw := bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
	return derp.NewClient(m.secret, c, rw, logf, derp.MeshKey(m.mesh))
}

// watch runs until the relay closes the connection, which it does only when the whole relay closes. If the monitor
// fails, watch closes the relay, because no key could be revoked without a monitor.
func (m *monitor) watch(ctx context.Context, client *derp.Client) {
	for {
		msg, err := client.Recv()
		if err != nil {
			if ctx.Err() == nil {
				m.log.Error("relay monitor lost its connection", "err", err)
				m.relay.Close()
			}
			return
		}
		switch msg := msg.(type) {
		case derp.PeerPresentMessage:
			if msg.Flags&derp.PeerPresentIsMeshPeer != 0 {
				continue // this monitor, or another relay of the mesh
			}
			m.note(msg.Key, true)
			if !m.check(msg.Key) {
				m.kick(msg.Key)
			}
		case derp.PeerGoneMessage:
			m.note(msg.Peer, false)
		case derp.PingMessage:
			if err := client.SendPong(msg); err != nil {
				m.log.Warn("cannot answer the relay's ping", "err", err)
			}
		}
	}
}

// kick ends all connections of a key.
func (m *monitor) kick(k key.NodePublic) {
	err := m.client.ClosePeer(k)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		m.log.Debug("cannot close a relay connection", "err", err)
	}
}

func (m *monitor) note(k key.NodePublic, present bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if present {
		m.connected[k] = 1
	} else {
		delete(m.connected, k)
	}
	m.change.Notify()
}

// wait blocks until a key is connected, or not connected if present is false.
func (m *monitor) wait(ctx context.Context, k key.NodePublic, present bool) error {
	for {
		m.mu.Lock()
		_, is := m.connected[k]
		change := m.change.Changed()
		m.mu.Unlock()
		if is == present {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *monitor) connectedNow(k key.NodePublic) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, is := m.connected[k]
	return is
}

func (m *monitor) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.connected)
}
