package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
)

// serveRelay is the process that the relay's figures are taken from. It prints its URL, admits the keys that it reads,
// and ends with its input.
func serveRelay() error {
	s, err := relay.New(relay.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/derp", s.Handler())
	mux.Handle("/derp/", s.Handler())
	web := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	defer web.Close()
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(l) }()
	fmt.Printf("http://%s\n", l.Addr())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var key tailnet.PublicKey
		if n, err := hex.Decode(key[:], lines.Bytes()); err != nil || n != len(key) {
			return errors.New("not a key")
		}
		s.Admit(key)
		fmt.Println("admitted")
	}
	select {
	case err := <-failed:
		return err
	default:
		return lines.Err()
	}
}

// relayProcess is such a process.
type relayProcess struct {
	cmd *exec.Cmd
	url *url.URL
	in  io.WriteCloser
	out *bufio.Scanner
}

func startRelay(ctx context.Context) (*relayProcess, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &relayProcess{cmd: exec.CommandContext(ctx, own, "-serve-relay")}
	r.cmd.Stderr = os.Stderr
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	r.out = bufio.NewScanner(out)
	if !r.out.Scan() {
		return nil, errors.Join(errors.New("the relay did not start"), r.close())
	}
	r.url, err = url.Parse(r.out.Text())
	return r, err
}

func (r *relayProcess) close() error {
	r.in.Close()
	return r.cmd.Wait()
}

// node returns a new node that uses the relay only.
func (r *relayProcess) node() (*tailnet.Node, error) {
	n, err := tailnet.New(tailnet.Options{ID: uuid.New(), RelayOnly: true})
	if err != nil {
		return nil, err
	}
	key := n.PublicKey()
	if _, err := fmt.Fprintf(r.in, "%x\n", key[:]); err != nil || !r.out.Scan() {
		return nil, errors.Join(errors.New("the relay does not admit a node"), err, n.Close())
	}
	return n, n.SetRelayMap(tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "scale", Name: "Scale"}}},
		r.url)
}

// relay measures a relay in a process of its own. Both ends of the pairs are in this one.
func (b *bench) relay(ctx context.Context) error {
	const idlePairs, busyPairs, long = 50, 8, 10 * time.Second
	r, err := startRelay(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	empty, _, err := memory(r.cmd.Process.Pid)
	if err != nil {
		return err
	}
	var conns []net.Conn
	var nodes []*tailnet.Node
	var received atomic.Int64
	var draining sync.WaitGroup
	defer func() {
		for _, n := range nodes {
			n.Close()
		}
		draining.Wait()
	}()
	for range idlePairs {
		near, far, conn, err := r.pair(ctx, &draining, &received)
		if err != nil {
			return err
		}
		nodes, conns = append(nodes, near, far), append(conns, conn)
	}
	if err := pause(ctx, 5*time.Second); err != nil {
		return err
	}
	full, _, err := memory(r.cmd.Process.Pid)
	if err != nil {
		return err
	}
	b.atMost("relay: memory of each idle pair", float64(full-empty)/idlePairs/1000, "kB", 200,
		fmt.Sprintf("resident, %d pairs", idlePairs))

	before, err := cpu(r.cmd.Process.Pid)
	if err != nil {
		return err
	}
	received.Store(0)
	began := time.Now()
	var sending sync.WaitGroup
	for _, c := range conns[:busyPairs] {
		if err := c.SetWriteDeadline(began.Add(long)); err != nil {
			return err
		}
		sending.Go(func() {
			chunk := make([]byte, 256<<10)
			for {
				if _, err := c.Write(chunk); err != nil {
					return // the deadline
				}
			}
		})
	}
	sending.Wait()
	took, bits := time.Since(began).Seconds(), 8*float64(received.Load())
	after, err := cpu(r.cmd.Process.Pid)
	if err != nil {
		return err
	}
	b.atLeast("relay: throughput in sum", bits/took/1e9, "Gbit/s", 1,
		fmt.Sprintf("%d pairs, with both ends on the same cores; load %s", busyPairs, load()))
	b.atLeast("relay: throughput of a core", bits/(after-before).Seconds()/1e9, "Gbit/s", 1,
		"by the CPU time of the relay's process alone")
	return nil
}

// pair connects two new nodes through the relay. The far one counts what it receives.
func (r *relayProcess) pair(
	ctx context.Context, draining *sync.WaitGroup, received *atomic.Int64,
) (near, far *tailnet.Node, conn net.Conn, err error) {
	if near, err = r.node(); err != nil {
		return nil, nil, nil, err
	}
	if far, err = r.node(); err != nil {
		return nil, nil, nil, errors.Join(err, near.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, near.Close(), far.Close())
		}
	}()
	for _, n := range []*tailnet.Node{near, far} {
		if err := until(ctx, slow, "connect to the relay", func() (bool, error) { return n.Info().Region != 0, nil }); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := near.Upsert(tailnet.Peer{NodeInfo: far.Info(), Inbound: tailnet.InboundNone}); err != nil {
		return nil, nil, nil, err
	}
	if err := far.Upsert(tailnet.Peer{NodeInfo: near.Info(), Inbound: tailnet.InboundAll}); err != nil {
		return nil, nil, nil, err
	}
	l, err := far.Listen(7)
	if err != nil {
		return nil, nil, nil, err
	}
	draining.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(counter{received}, c) // ends with the node
	})
	dial, cancel := context.WithTimeout(ctx, slow)
	defer cancel()
	if conn, err = near.Dial(dial, "tcp", netip.AddrPortFrom(far.Addr(), 7)); err != nil {
		return nil, nil, nil, err
	}
	return near, far, conn, nil
}

// counter counts the bytes that are written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
