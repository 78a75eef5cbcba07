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
)

// warden is a privileged client of the relay in the same process. It is told of every client that connects, after it did,
// and ends the connections of those who are not, or no more, admitted. Together with the question before the connection
// this leaves no gap in which a revoked key could slip in.
type warden struct {
	relay  *derpserver.Server
	mesh   key.DERPMesh
	secret key.NodePrivate
	check  func(key.NodePublic) bool
	log    *slog.Logger
	cancel context.CancelFunc

	mu        sync.Mutex
	client    *derp.Client
	connected map[key.NodePublic]int // clients by key, how many connections
	change    chan struct{}          // closed and replaced when connected changes

	running sync.WaitGroup
}

func startWarden(relay *derpserver.Server, mesh key.DERPMesh, check func(key.NodePublic) bool, log *slog.Logger) (*warden, error) {
	w := &warden{
		relay: relay, mesh: mesh, secret: key.NewNode(), check: check, log: log,
		connected: make(map[key.NodePublic]int), change: make(chan struct{}),
	}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	ours, theirs := net.Pipe()
	w.running.Go(func() {
		relay.Accept(ctx, theirs, bufio.NewReadWriter(bufio.NewReader(theirs), bufio.NewWriter(theirs)), "127.0.0.1:0")
	})
	client, err := w.connect(ours)
	if err != nil {
		w.cancel()
		ours.Close()
		w.running.Wait()
		return nil, fmt.Errorf("start relay warden: %w", err)
	}
	w.client = client
	w.running.Go(func() {
		defer ours.Close()
		w.watch(ctx, client)
	})
	// Only now: a pipe has no buffer, and somebody must read what the relay says first.
	if err := client.WatchConnectionChanges(); err != nil {
		w.cancel()
		ours.Close()
		w.running.Wait()
		return nil, fmt.Errorf("start relay warden: %w", err)
	}
	return w, nil
}

func (w *warden) connect(c net.Conn) (*derp.Client, error) {
	logf := func(format string, args ...any) { w.log.Debug("relay warden", "line", fmt.Sprintf(format, args...)) }
	c.SetDeadline(time.Now().Add(10 * time.Second))
	defer c.SetDeadline(time.Time{})
	rw := bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
	return derp.NewClient(w.secret, c, rw, logf, derp.MeshKey(w.mesh))
}

// watch ends when the relay closes the connection, which it does only when it closes as a whole. Without a warden nobody
// could be revoked: then the relay rather serves nobody.
func (w *warden) watch(ctx context.Context, client *derp.Client) {
	for {
		msg, err := client.Recv()
		if err != nil {
			if ctx.Err() == nil {
				w.log.Error("relay warden lost its connection", "err", err)
				w.relay.Close()
			}
			return
		}
		switch msg := msg.(type) {
		case derp.PeerPresentMessage:
			if msg.Key == w.secret.Public() {
				continue
			}
			w.note(msg.Key, true)
			if !w.check(msg.Key) {
				w.kick(msg.Key)
			}
		case derp.PeerGoneMessage:
			w.note(msg.Peer, false)
		case derp.PingMessage:
			if err := client.SendPong(msg); err != nil {
				w.log.Warn("relay warden answers", "err", err)
			}
		}
	}
}

// kick ends all connections of the key.
func (w *warden) kick(k key.NodePublic) {
	err := w.client.ClosePeer(k)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		w.log.Debug("kick from relay", "err", err)
	}
}

func (w *warden) note(k key.NodePublic, present bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if present {
		w.connected[k] = 1
	} else {
		delete(w.connected, k)
	}
	close(w.change)
	w.change = make(chan struct{})
}

// wait blocks until the presence of a key is as wanted.
func (w *warden) wait(ctx context.Context, k key.NodePublic, present bool) error {
	for {
		w.mu.Lock()
		_, is := w.connected[k]
		change := w.change
		w.mu.Unlock()
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

func (w *warden) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.connected)
}
