package relay

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"tailscale.com/derp"
	"tailscale.com/derp/derphttp"
	"tailscale.com/net/netmon"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/internal/backoff"
)

// Follow forwards packets to the nodes that are connected to the relay at base, which must have the same MeshKey, until ctx ends. It connects
// again whenever the connection is lost. To forward packets in both directions, each relay follows the other.
func (s *Server) Follow(ctx context.Context, base *url.URL) {
	state, end := s.beginFollowing(base)
	defer end()
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	for ctx.Err() == nil {
		connected, err := s.follow(ctx, base, state)
		if ctx.Err() != nil {
			return
		}
		s.log.Debug("connection to another relay ended", "url", base.Redacted(), "err", err)
		if connected {
			retry.Reset()
		}
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// follow follows another relay until the connection ends. It reports whether there was one.
func (s *Server) follow(ctx context.Context, base *url.URL, state *following) (connected bool, _ error) {
	logf := func(format string, args ...any) {
		s.log.Debug("connection to another relay", "url", base.Redacted(), "line", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
	client, err := derphttp.NewClient(s.relay.PrivateKey(), base.JoinPath("derp").String(), logf, netmon.NewStatic())
	if err != nil {
		return false, fmt.Errorf("follow relay: %w", err)
	}
	defer client.Close()
	client.MeshKey = s.relay.MeshKey()
	client.WatchConnectionChanges = true
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { client.Close() })() // the loop ends only then

	// The loop calls all of these on its own goroutine, which is this one.
	forwarded := make(map[key.NodePublic]bool)
	add := func(m derp.PeerPresentMessage) {
		if m.Flags&derp.PeerPresentIsMeshPeer != 0 || forwarded[m.Key] {
			return
		}
		forwarded[m.Key] = true
		s.mu.Lock()
		state.nodes[m.Key] = true
		s.mu.Unlock()
		s.relay.AddPacketForwarder(m.Key, client)
	}
	remove := func(m derp.PeerGoneMessage) {
		if forwarded[m.Peer] {
			delete(forwarded, m.Peer)
			s.mu.Lock()
			delete(state.nodes, m.Peer)
			s.mu.Unlock()
			s.relay.RemovePacketForwarder(m.Peer, client)
		}
	}
	// The loop would sleep for five seconds.
	failed := func(err error) { cancel(err) }
	present := func(m derp.PeerPresentMessage) {
		if !connected {
			connected = true
			s.mu.Lock()
			state.since, state.err = time.Now(), ""
			s.mu.Unlock()
		}
		add(m)
	}
	client.RunWatchConnectionLoop(ctx, s.relay.PublicKey(), logf, present, remove, failed)
	s.mu.Lock()
	state.since, state.err = time.Time{}, "the connection ended"
	if err := context.Cause(ctx); err != nil {
		state.err = err.Error()
	}
	clear(state.nodes)
	s.mu.Unlock()
	for k := range forwarded {
		s.relay.RemovePacketForwarder(k, client)
	}
	return connected, context.Cause(ctx)
}
