package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/bench/slowlink"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
)

// A keys scene has one node in the first namespace, and in the second two others with their relay. The node types to
// one of them, each key as soon as the last has come back and keyEvery has passed, while bytes go to the other, or come
// from it.
type keysScene struct {
	mbits   float64
	queue   time.Duration
	relayed bool
}

var keysScenes = []keysScene{
	{100, 40 * time.Millisecond, false},
	{100, 40 * time.Millisecond, true},
	{20, 40 * time.Millisecond, false},
	{20, 40 * time.Millisecond, true},
	{20, 200 * time.Millisecond, true},
}

const (
	keyEvery  = 30 * time.Millisecond
	keysIdle  = 4 * time.Second
	keysSpell = 10 * time.Second
	keysPause = 2 * time.Second // until what a transfer has left behind is gone

	// Ports of the second namespace.
	keysRelay   = 7000
	keysControl = 7001

	// Ports of its nodes.
	portEcho, portSink, portSource = 7, 9, 19
)

// keysResult is what one run of a keys scene measured.
type keysResult struct {
	Idle, Up, Down           trips
	UploadRate, DownloadRate float64 // Mbit/s
}

// trips are round trips of keys, in ms: the median, and what 95 of 100 take at most.
type trips struct{ Half, Most float64 }

// measureKeys prints the table of the keys scenes.
func measureKeys(ctx context.Context, runs int, only string) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "WIRE\tPATH\tKEYS, ms: IDLE; 95 %\tBESIDE AN UPLOAD\tMbit/s\tBESIDE A DOWNLOAD\tMbit/s")
	for _, s := range keysScenes {
		path := "direct"
		if s.relayed {
			path = "relayed"
		}
		if only != "" && only != "keys" && only != path {
			continue
		}
		var all []keysResult
		for range runs {
			r, err := s.run(ctx)
			if err != nil {
				return fmt.Errorf("keys: %w", err)
			}
			all = append(all, r)
		}
		of := func(f func(keysResult) float64) string { return spread(all, f) }
		both := func(f func(keysResult) trips) string {
			return of(func(r keysResult) float64 { return f(r).Half }) + "; " +
				of(func(r keysResult) float64 { return f(r).Most })
		}
		fmt.Fprintf(table, "%.0f Mbit/s, queue %v\t%s\t%s\t%s\t%s\t%s\t%s\n", s.mbits, s.queue, path,
			both(func(r keysResult) trips { return r.Idle }),
			both(func(r keysResult) trips { return r.Up }), of(func(r keysResult) float64 { return r.UploadRate }),
			both(func(r keysResult) trips { return r.Down }), of(func(r keysResult) float64 { return r.DownloadRate }))
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// run measures a scene once.
func (s keysScene) run(ctx context.Context) (r keysResult, err error) {
	wire, err := newWire(ctx, slowlink.Options{Delay: trip / 2, Rate: s.mbits * 1e6 / 8, Queue: s.queue})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, wire.close(ctx)) }()
	own, err := os.Executable()
	if err != nil {
		return r, err
	}
	in := func(namespace string, flags ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", namespace, own}, flags...)...)
		cmd.Stderr = os.Stderr
		return cmd
	}
	far := in(wire.b, "-far")
	input, err := far.StdinPipe()
	if err != nil {
		return r, err
	}
	if err := far.Start(); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, input.Close(), far.Wait()) }()
	out, err := in(wire.a, "-near", "-relayed="+strconv.FormatBool(s.relayed)).Output()
	if err != nil {
		return r, fmt.Errorf("near end: %w", err)
	}
	return r, json.Unmarshal(out, &r)
}

// farEnd serves the relay and two nodes until its input ends.
func farEnd() error {
	s, err := relay.New(relay.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	listen := func(port int) (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(addrB, strconv.Itoa(port)))
	}
	relays, err := listen(keysRelay)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/derp", s.Handler())
	mux.Handle("/derp/", s.Handler())
	web := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	defer web.Close()
	go func() { _ = web.Serve(relays) }() // until it is closed
	var nodes []*tailnet.Node
	for range 2 {
		n, err := newKeysNode(false)
		if err != nil {
			return err
		}
		defer n.Close()
		s.Admit(n.PublicKey())
		if err := joinRelay(n); err != nil {
			return err
		}
		if err := serveNode(n); err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	control, err := listen(keysControl)
	if err != nil {
		return err
	}
	defer control.Close()
	go func() {
		for {
			c, err := control.Accept()
			if err != nil {
				return
			}
			go introduce(c, nodes, func(k tailnet.PublicKey) { s.Admit(k) })
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func newKeysNode(relayOnly bool) (*tailnet.Node, error) {
	return tailnet.New(tailnet.Options{ID: uuid.New(), RelayOnly: relayOnly})
}

func joinRelay(n *tailnet.Node) error {
	at := &url.URL{Scheme: "http", Host: net.JoinHostPort(addrB, strconv.Itoa(keysRelay))}
	return n.SetRelayMap(tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "fair", Name: "Fair"}}}, at)
}

// introduce exchanges what nodes tell about themselves with the other end of c, until that closes it. Each end sends
// the infos of its nodes whenever they change.
func introduce(c net.Conn, nodes []*tailnet.Node, heard func(tailnet.PublicKey)) {
	defer c.Close()
	done := make(chan struct{})
	defer close(done)
	go func() {
		enc, last := json.NewEncoder(c), make([]uint64, len(nodes))
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for {
			for i, n := range nodes {
				info := n.Info()
				if info.Seq == last[i] {
					continue
				}
				last[i] = info.Seq
				if enc.Encode(info) != nil {
					return
				}
			}
			select {
			case <-every.C:
			case <-done:
				return
			}
		}
	}()
	dec := json.NewDecoder(c)
	for {
		var info tailnet.NodeInfo
		if dec.Decode(&info) != nil {
			return
		}
		heard(info.Key)
		for _, n := range nodes {
			if n.Upsert(tailnet.Peer{NodeInfo: info, Inbound: tailnet.InboundAll}) != nil {
				return // closed
			}
		}
	}
}

// serveNode serves the ports of a node.
func serveNode(n *tailnet.Node) error {
	for port, serve := range map[uint16]func(net.Conn){
		portEcho:   func(c net.Conn) { _, _ = io.Copy(c, c) }, // until either end closes
		portSink:   func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		portSource: func(c net.Conn) { push(c) },
	} {
		l, err := n.Listen(port)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					serve(c)
				}()
			}
		}()
	}
	return nil
}

// nearEnd measures, and prints a keysResult.
func nearEnd(ctx context.Context, relayed bool) error {
	n, err := newKeysNode(relayed)
	if err != nil {
		return err
	}
	defer n.Close()
	var control net.Conn
	for control == nil { // the far end may be starting
		at := net.JoinHostPort(addrB, strconv.Itoa(keysControl))
		if control, err = new(net.Dialer).DialContext(ctx, "tcp", at); err != nil {
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	go introduce(control, []*tailnet.Node{n}, func(tailnet.PublicKey) {})
	if err := joinRelay(n); err != nil {
		return err
	}
	var peers []tailnet.Peer
	for len(peers) < 2 {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		peers = n.Peers()
	}
	dial := func(peer int, port uint16) (net.Conn, error) {
		return n.Dial(ctx, "tcp", netip.AddrPortFrom(peers[peer].Addr(), port))
	}
	for _, p := range peers {
		if err := settle(ctx, n, p.ID, relayed); err != nil {
			return err
		}
	}
	keys, err := dial(1, portEcho)
	if err != nil {
		return err
	}
	defer keys.Close()
	var r keysResult
	if r.Idle, err = typeKeys(ctx, keys, keysIdle); err != nil {
		return err
	}
	sink, err := dial(0, portSink)
	if err != nil {
		return err
	}
	var sent atomic.Int64
	go push(counted{sink, &sent})
	if r.Up, r.UploadRate, err = beside(ctx, keys, &sent); err != nil {
		return err
	}
	if err := errors.Join(sink.Close(), pause(ctx, keysPause)); err != nil {
		return err
	}
	source, err := dial(0, portSource)
	if err != nil {
		return err
	}
	defer source.Close()
	var got atomic.Int64
	go func() { _, _ = io.Copy(counted{io.Discard, &got}, source) }() // until the end
	if r.Down, r.DownloadRate, err = beside(ctx, keys, &got); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// settle waits until the path to a peer is direct, or relayed.
func settle(ctx context.Context, n *tailnet.Node, peer uuid.UUID, relayed bool) error {
	for {
		pong, err := n.Ping(ctx, peer)
		if err != nil {
			return err
		}
		if pong.Direct != relayed {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// counted counts the bytes that are written.
type counted struct {
	io.Writer
	n *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// beside types while a transfer runs, and also returns its rate.
func beside(ctx context.Context, keys net.Conn, bytes *atomic.Int64) (trips, float64, error) {
	if err := pause(ctx, begin); err != nil {
		return trips{}, 0, err
	}
	before, since := bytes.Load(), time.Now()
	t, err := typeKeys(ctx, keys, keysSpell)
	return t, float64(bytes.Load()-before) * 8 / 1e6 / time.Since(since).Seconds(), err
}

// typeKeys sends bytes that come back, for a time.
func typeKeys(ctx context.Context, c net.Conn, long time.Duration) (trips, error) {
	var all []time.Duration
	key := make([]byte, 1)
	for end := time.Now().Add(long); time.Now().Before(end); {
		since := time.Now()
		if _, err := c.Write(key); err != nil {
			return trips{}, err
		}
		if _, err := io.ReadFull(c, key); err != nil {
			return trips{}, err
		}
		all = append(all, time.Since(since))
		if err := pause(ctx, time.Until(since.Add(keyEvery))); err != nil {
			return trips{}, err
		}
	}
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	return trips{ms(all[len(all)/2]), ms(all[len(all)*95/100])}, nil
}
