package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// meshServers is how many servers the part cluster has.
const meshServers = 3

// ample is a wait that is longer than thousands of participants need on a busy machine.
const ample = 15 * time.Minute

// cluster is mesh servers that are linked to each other, and participants of them that carry no packets: their
// connections to the coordinator, with what leads them back to it, are those of real agents and clients.
type cluster struct {
	servers []*meshProcess
	ways    *balancer
	agents  []*still
	users   []*still
	partner map[*still]*still // agents, by user
}

// startCluster starts n servers. The caller must close the cluster.
func startCluster(ctx context.Context, n int) (*cluster, error) {
	c := &cluster{ways: &balancer{}, partner: map[*still]*still{}}
	for range n {
		s, err := startMesh(ctx)
		if s != nil {
			c.servers = append(c.servers, s)
		}
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	c.ways.lead(c.servers)
	var all []string
	for _, s := range c.servers {
		all = append(all, fmt.Sprintf("%s=%s", s.id, s.url))
	}
	for _, s := range c.servers {
		if err := s.send("others " + strings.Join(all, " ")); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	err := until(ctx, slow, "link the servers", func() (bool, error) {
		states, err := c.states()
		return !slices.ContainsFunc(states, func(s meshState) bool { return s.Linked != n-1 }), err
	})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close ends participants and servers.
func (c *cluster) close() error {
	var leaving sync.WaitGroup
	for _, p := range slices.Concat(c.users, c.agents) {
		leaving.Go(func() { _ = p.client.Close() })
	}
	leaving.Wait()
	var errs []error
	for _, s := range c.servers {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// alive returns the servers that were not killed.
func (c *cluster) alive() []*meshProcess {
	return slices.DeleteFunc(slices.Clone(c.servers), func(s *meshProcess) bool { return s.dead })
}

// states returns the states of the servers that live.
func (c *cluster) states() ([]meshState, error) {
	var all []meshState
	for _, s := range c.alive() {
		state, err := s.state()
		if err != nil {
			return nil, err
		}
		all = append(all, state)
	}
	return all, nil
}

// join makes n agents join through the balancer, all at one time, and waits for them.
func (c *cluster) join(ctx context.Context, n int) error {
	for range n {
		c.agents = append(c.agents, c.enter(protocol.KindAgent))
	}
	return until(ctx, ample, "agents join", func() (bool, error) { return c.away() == 0, nil })
}

// away returns how many agents no living server has.
func (c *cluster) away() (n int) {
	for _, a := range c.agents {
		if s := a.home.Load(); s == nil || s.gone.Load() {
			n++
		}
	}
	return n
}

// still is a participant whose node does not move packets.
type still struct {
	of     *cluster
	id     uuid.UUID
	kind   protocol.Kind
	key    tailnet.PublicKey
	client *client.Client
	change chan struct{}
	seq    atomic.Uint64
	home   atomic.Pointer[meshProcess] // that it was last introduced to

	mu    sync.Mutex
	peers map[uuid.UUID]uint64 // what the node knows, by sequence number; guarded by mu
	heard notify.Broadcast     // of changes of peers; guarded by mu
}

// enter makes a participant join.
func (c *cluster) enter(kind protocol.Kind) *still {
	key := tailnet.NewPrivateKey().Public()
	p := &still{of: c, id: uuid.New(), kind: kind, key: key, change: make(chan struct{}, 1), peers: map[uuid.UUID]uint64{}}
	p.seq.Store(1)
	header := http.Header{sdk.AgentTokenHeader: {p.id.String()}}
	opts := client.Options{URL: &url.URL{
		Scheme: "http", Host: "balancer",
	}, Kind: kind, Key: key, HTTPClient: c.ways.client()}
	if kind == protocol.KindClient {
		header = http.Header{sdk.SessionHeader: {p.id.String()}}
		p.id = tailnet.ClientID(key)
		opts.Early = func() client.Node { return p }
	}
	opts.Header = func(context.Context) (http.Header, error) { return header, nil }
	opts.NewNode = func(protocol.Welcome) (client.Node, error) { return p, nil }
	p.client = client.New(opts)
	p.client.Start()
	return p
}

func (p *still) PublicKey() tailnet.PublicKey                 { return p.key }
func (p *still) Changed() <-chan struct{}                     { return p.change }
func (p *still) SetRelayMap(tailnet.RelayMap, *url.URL) error { return nil }
func (p *still) SetOnline(bool)                               {}
func (p *still) Info() tailnet.NodeInfo {
	seq := p.seq.Load()
	return tailnet.NodeInfo{
		ID: p.id, Key: p.key, Disco: tailnet.DiscoKey{1}, Region: tailnet.ServerRegion, Seq: seq, Measured: true,
		Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), uint16(seq%60_000)+1)},
	}
}

// Upsert notes a peer. An agent that learns of a server begins its stream to it, which here is a word to the server.
func (p *still) Upsert(in tailnet.Peer) error {
	p.mu.Lock()
	p.peers[in.ID] = in.Seq
	p.heard.Notify()
	p.mu.Unlock()
	if p.kind != protocol.KindAgent {
		return nil
	}
	i := slices.IndexFunc(p.of.servers, func(s *meshProcess) bool { return s.id == in.ID })
	if i < 0 || p.home.Swap(p.of.servers[i]) == p.of.servers[i] {
		return nil
	}
	return p.of.servers[i].send("arrived " + p.id.String())
}

func (p *still) Remove(id uuid.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.peers, id)
	p.heard.Notify()
}

// move changes the node, as a laptop that gets another address does.
func (p *still) move() (seq uint64) {
	seq = p.seq.Add(1)
	select {
	case p.change <- struct{}{}:
	default:
	}
	return seq
}

// learns waits until the node knows that another one has changed.
func (p *still) learns(ctx context.Context, of *still, seq uint64) error {
	for {
		p.mu.Lock()
		known := p.peers[of.id]
		heard := p.heard.Changed()
		p.mu.Unlock()
		if known >= seq {
			return nil
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return fmt.Errorf("%s did not learn that %s has changed: %w", p.id, of.id, context.Cause(ctx))
		}
	}
}

// introduce makes n users join, and introduces each to an agent at another server. It returns how long each
// introduction took, once both ends knew of it.
func (c *cluster) introduce(ctx context.Context, n int) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, ample)
	defer cancel()
	for range n {
		c.users = append(c.users, c.enter(protocol.KindClient))
	}
	used := map[*still]bool{}
	took := make([]time.Duration, n)
	for _, u := range c.users {
		w, err := u.client.Welcome(ctx)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(c.agents,
			func(a *still) bool { return !used[a] && !slices.Contains(w.Servers, a.home.Load().id) })
		if i < 0 {
			return nil, errors.New("there is no agent at another server")
		}
		used[c.agents[i]], c.partner[u] = true, c.agents[i]
	}
	return took, each(n, 8, func(i int) error {
		u := c.users[i]
		began := time.Now()
		if err := u.client.Subscribe(ctx, c.partner[u].id); err != nil {
			return err
		}
		if err := c.partner[u].learns(ctx, u, 1); err != nil {
			return err
		}
		took[i] = time.Since(began)
		return nil
	})
}

// pairs moves both ends of every pair, and waits until the other one knows.
func (c *cluster) pairs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ample)
	defer cancel()
	users := slices.Collect(maps.Keys(c.partner))
	return each(len(users), 8, func(i int) error {
		u, a := users[i], c.partner[users[i]]
		return errors.Join(u.learns(ctx, a, a.move()), a.learns(ctx, u, u.move()))
	})
}

// kill ends the first server. Its participants find the others through the balancer.
func (c *cluster) kill() error {
	s := c.servers[0]
	s.gone.Store(true)
	c.ways.lead(c.servers[1:])
	return s.kill()
}

// back waits until every participant is at a server that lives, and the servers agree about it.
func (c *cluster) back(ctx context.Context) error {
	if err := until(ctx, ample, "agents return", func() (bool, error) { return c.away() == 0, nil }); err != nil {
		return err
	}
	all := len(c.agents) + len(c.users) + len(c.alive())
	return until(ctx, ample, "the servers' tables are complete", func() (bool, error) {
		states, err := c.states()
		sum := 0
		for _, s := range states {
			sum += s.Online
		}
		return sum == all, err
	})
}

// balancer leads each connection to the next server, like a load balancer in turns, and counts bytes.
type balancer struct {
	servers atomic.Pointer[[]*meshProcess]
	next    atomic.Uint64
	dials   atomic.Uint64
	bytes   atomic.Int64
}

func (b *balancer) lead(to []*meshProcess) { b.servers.Store(&to) }

// client returns what makes requests through the balancer.
func (b *balancer) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, WriteBufferSize: 1 << 10, ReadBufferSize: 1 << 10, DialContext: b.dial,
	}}
}

func (b *balancer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	servers := *b.servers.Load()
	b.dials.Add(1)
	s := servers[b.next.Add(1)%uint64(len(servers))]
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.url.Host)
	if err != nil {
		return nil, err
	}
	return countedConn{conn, &b.bytes}, nil
}

// countedConn counts what passes in both directions.
type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// used returns the CPU time and the resident memory of the living servers, in sum.
func (c *cluster) used() (spent time.Duration, resident int64, err error) {
	for _, s := range c.alive() {
		t, err := cpu(s.cmd.Process.Pid)
		if err != nil {
			return 0, 0, err
		}
		m, _, err := memory(s.cmd.Process.Pid)
		if err != nil {
			return 0, 0, err
		}
		spent, resident = spent+t, resident+m
	}
	return spent, resident, nil
}

// cluster measures three servers and what happens when one of them dies. No tunnel is made.
func (b *bench) cluster(ctx context.Context) (err error) {
	c, err := startCluster(ctx, meshServers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	_, empty, err := c.used()
	if err != nil {
		return err
	}
	if err := b.clusterJoins(ctx, c, empty); err != nil {
		return err
	}
	if err := b.clusterPairs(ctx, c); err != nil {
		return err
	}
	return b.clusterLoss(ctx, c)
}

// clusterJoins measures the arrival of all agents, and then a time in which nothing happens.
func (b *bench) clusterJoins(ctx context.Context, c *cluster, empty int64) error {
	n := float64(b.peers)
	before, _, err := c.used()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.join(ctx, b.peers); err != nil {
		return err
	}
	took := time.Since(began)
	joined, _, err := c.used()
	if err != nil {
		return err
	}
	b.info(fmt.Sprintf("cluster: %d agents join %d servers at one time", b.peers, meshServers), took.Seconds(), "s",
		fmt.Sprintf("%d connections, servers %.3g CPU s; load %s", c.ways.dials.Load(), (joined-before).Seconds(),
			load()))
	if err := pause(ctx, b.idle); err != nil { // for the collector
		return err
	}
	quiet, _, err := c.used()
	if err != nil {
		return err
	}
	states, err := c.states()
	if err != nil {
		return err
	}
	sent := c.ways.bytes.Load()
	if err := pause(ctx, b.idle); err != nil {
		return err
	}
	bytes := float64(c.ways.bytes.Load()-sent) / n / b.idle.Minutes()
	idle, resident, err := c.used()
	if err != nil {
		return err
	}
	later, err := c.states()
	if err != nil {
		return err
	}
	var messages uint64
	for i := range later {
		messages += later[i].Messages - states[i].Messages
	}
	b.info("cluster: memory of each agent, at all servers", float64(resident-empty)/n/1000, "kB resident",
		fmt.Sprintf("%.0f MB in sum", float64(resident)/1e6))
	b.info("cluster: bytes of each idle agent", bytes, "bytes a minute",
		"its connection to the coordinator, both directions")
	b.info("cluster: CPU of all servers with idle agents", 100*(idle-quiet).Seconds()/b.idle.Seconds(), "% of a core",
		fmt.Sprintf("%d messages between servers in %s", messages, b.idle))
	return nil
}

// clusterPairs measures introductions of users to agents at other servers.
func (b *bench) clusterPairs(ctx context.Context, c *cluster) error {
	n := b.peers / 10
	before, _, err := c.used()
	if err != nil {
		return err
	}
	took, err := c.introduce(ctx, n)
	if err != nil {
		return err
	}
	after, _, err := c.used()
	if err != nil {
		return err
	}
	b.info(fmt.Sprintf("cluster: introduction to an agent at another server, beside %d agents", b.peers), milliseconds(quantile(took, 0.5)), "ms",
		fmt.Sprintf("median of %d, 8 at a time; 99 %% within %.3g ms; %.3g ms of CPU each, with the join", n,
			milliseconds(quantile(took, 0.99)), milliseconds(after-before)/float64(n)))
	return nil
}

// clusterLoss measures how the agents of a server that is killed get to the others.
func (b *bench) clusterLoss(ctx context.Context, c *cluster) error {
	state, err := c.servers[0].state()
	if err != nil {
		return err
	}
	dials := c.ways.dials.Load()
	if err := c.kill(); err != nil {
		return err
	}
	before, _, err := c.used()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.back(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	after, _, err := c.used()
	if err != nil {
		return err
	}
	b.info(fmt.Sprintf("cluster: a server dies: its %d participants are at the others", state.Online-1), took.Seconds(), "s",
		fmt.Sprintf("%d connections, servers %.3g CPU s; load %s", c.ways.dials.Load()-dials, (after-before).Seconds(),
			load()))
	if err := c.pairs(ctx); err != nil {
		return err
	}
	b.info("cluster: every user and agent that were introduced learn of each other's next move",
		time.Since(began).Seconds(), "s", "since the server died")
	return nil
}
