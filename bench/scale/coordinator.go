package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// peer is a participant of the coordinator without a node.
type peer struct {
	coordinator.Principal
	key    tailnet.PublicKey
	conn   protocol.Conn
	heard  chan uuid.UUID // whose announcement arrived
	closed chan struct{}
}

func (b *bench) connect(ctx context.Context, s *coordinator.Server, kind protocol.Kind) (*peer, error) {
	key := tailnet.NewPrivateKey().Public()
	id := uuid.New()
	if kind == protocol.KindClient {
		id = tailnet.ClientID(key)
	}
	p := &peer{coordinator.Principal{
		Kind: kind, ID: id, Name: id.String(),
	}, key, nil, make(chan uuid.UUID, 16), make(chan struct{})}
	if kind == protocol.KindServer {
		p.heard = make(chan uuid.UUID, 2*b.peers)
	}
	var err error
	if p.conn, err = s.Dialer(p.Principal)(ctx, protocol.Hello{Version: 1, Key: key}); err != nil {
		return nil, err
	}
	go p.read()
	return p, p.announce(ctx, 1)
}

// read receives until the connection ends.
func (p *peer) read() {
	defer close(p.closed)
	for {
		data, err := p.conn.Read(context.Background())
		if err != nil {
			return
		}
		m, err := protocol.DecodeServerMessage(data)
		if err != nil {
			return
		}
		if m.Peer == nil {
			continue
		}
		if m.Peer.Ack {
			if p.say(context.Background(), protocol.ClientMessage{Ready: &protocol.PeerRef{
				ID: m.Peer.Info.ID,
			}}) != nil {
				return
			}
		}
		p.heard <- m.Peer.Info.ID
	}
}

func (p *peer) say(ctx context.Context, m protocol.ClientMessage) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return p.conn.Write(ctx, data)
}

func (p *peer) announce(ctx context.Context, seq uint64) error {
	return p.say(ctx, protocol.ClientMessage{Node: &tailnet.NodeInfo{
		ID: p.ID, Key: p.key, Disco: tailnet.DiscoKey{1}, Region: 1, Seq: seq, Measured: true,
		Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), uint16(seq%60_000)+1)},
	}})
}

// coordinator measures the table of participants alone: connections in memory instead of websockets, no relay, and no
// database.
func (b *bench) coordinator(ctx context.Context) error {
	s := coordinator.New(coordinator.Options{
		ID: uuid.New(),
		RelayMap: func() tailnet.RelayMap {
			return tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "scale", Name: "Scale"}}}
		},
		Authorizer: coordinator.AuthorizerFunc(func(context.Context, coordinator.Principal,
			coordinator.Target) error {
			return nil
		}),
	})
	defer s.Close()
	own, err := b.connect(ctx, s, protocol.KindServer)
	if err != nil {
		return err
	}
	var all []*peer
	defer func() {
		for _, p := range all {
			p.conn.Close(websock.StatusNormal, "")
			<-p.closed
		}
	}()
	var cost []time.Duration // of a change, by number of participants
	for _, n := range []int{b.peers / 10, b.peers} {
		before := alive()
		spent, err := cpu(os.Getpid())
		if err != nil {
			return err
		}
		had := len(all)
		for len(all) < n {
			p, err := b.connect(ctx, s, protocol.KindAgent)
			if err != nil {
				return err
			}
			all = append(all, p)
		}
		for range n - had { // each meets the server
			if err := await(ctx, own.heard); err != nil {
				return err
			}
		}
		for _, p := range all[had:] {
			if err := await(ctx, p.heard); err != nil {
				return err
			}
		}
		joined, err := cpu(os.Getpid())
		if err != nil {
			return err
		}
		if n == b.peers {
			b.atMost(fmt.Sprintf("coordinator: memory of each of %d peers", n), float64(alive()-before)/float64(n-had)/1000, "kB", 30, "heap and stacks, those of the simulated participants included")
			b.info("coordinator: CPU of each join", float64(joined-spent)/float64(n-had)/float64(time.Microsecond),
				"µs", "both ends")
		}
		each, err := b.changes(ctx, own, all)
		if err != nil {
			return err
		}
		cost = append(cost, each)
	}
	b.info(fmt.Sprintf("coordinator: CPU of a change beside %d peers", b.peers), float64(cost[1])/float64(time.Microsecond), "µs",
		fmt.Sprintf("one agent's, which its only partner learns; %.3g µs beside %d",
			float64(cost[0])/float64(time.Microsecond), b.peers/10))
	return nil
}

// changes returns the CPU time of an announcement and of its delivery to the only partner.
func (b *bench) changes(ctx context.Context, own *peer, all []*peer) (time.Duration, error) {
	before, err := cpu(os.Getpid())
	if err != nil {
		return 0, err
	}
	const rounds = 20
	n := min(len(all), 1000)
	for round := range rounds {
		for _, p := range all[:n] {
			if err := p.announce(ctx, uint64(2+round)+uint64(len(all))); err != nil {
				return 0, err
			}
		}
		for range n {
			if err := await(ctx, own.heard); err != nil {
				return 0, err
			}
		}
	}
	after, err := cpu(os.Getpid())
	return (after - before) / time.Duration(rounds*n), err
}

func await(ctx context.Context, heard <-chan uuid.UUID) error {
	t := time.NewTimer(slow)
	defer t.Stop()
	select {
	case <-heard:
		return nil
	case <-t.C:
		return fmt.Errorf("an announcement did not arrive within %s", slow)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// alive returns how many bytes of heap and stacks are in use.
func alive() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
