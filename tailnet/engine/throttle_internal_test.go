package engine

import (
	"io"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// faucet puts a TCP proxy in front of a relay. On demand, the proxy stops forwarding what the relay sends, or forwards it
// in drops.
type faucet struct {
	Relay
	drip atomic.Int64 // bytes per 10 ms; negative means all, 0 nothing
	sent atomic.Int64 // bytes forwarded
}

func newFaucet(t *testing.T, r Relay) *faucet {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &faucet{Relay: r}
	f.drip.Store(-1)
	f.URL = &url.URL{Scheme: "http", Host: l.Addr().String()}
	over := make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(func() {
		close(over)
		l.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", r.URL.Host)
			if err != nil {
				near.Close()
				continue
			}
			running.Go(func() {
				<-over
				near.Close()
				far.Close()
			})
			running.Go(func() {
				io.Copy(far, near)
				far.Close()
			})
			running.Go(func() {
				defer near.Close()
				f.pour(near, far, over)
			})
		}
	})
	return f
}

func (f *faucet) pour(near, far net.Conn, over <-chan struct{}) {
	buf := make([]byte, 64<<10)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		size := f.drip.Load()
		if size >= 0 {
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
		if size == 0 {
			continue
		}
		if size < 0 {
			size = int64(len(buf))
		}
		n, err := far.Read(buf[:min(size, int64(len(buf)))])
		if _, failed := near.Write(buf[:n]); err != nil || failed != nil {
			return
		}
		f.sent.Add(int64(n))
	}
}

// TestSlowPeerDelaysNoOther checks that a peer whose relay connection accepts little or nothing delays no other pair:
// neither other pairs with the same sender nor others on the same relay.
func TestSlowPeerDelaysNoOther(t *testing.T) {
	t.Parallel()
	for name, drip := range map[string]int64{"reads nothing": 0, "reads slowly": 2 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relay := newRelay(t)
			slow := newFaucet(t, relay)
			only := func(o *Options) { o.RelayOnly = true }
			sender, victim, other, stranger := newEngine(t, only), newEngine(t, only), newEngine(t, only), newEngine(t, only)
			for _, e := range []*Engine{sender, victim, other, stranger} {
				r := relay
				if e == victim {
					r = slow.Relay
				}
				e.SetRelays([]Relay{r}, 1)
				testwait.Until(t, "the relay is connected", connected(e))
			}
			for _, pair := range [][2]*Engine{{sender, victim}, {sender, other}, {stranger, other}} {
				pair[0].Upsert(about(pair[1]))
				pair[1].Upsert(about(pair[0]))
				exchange(t, pair[0], pair[1], 1000)
			}

			slow.drip.Store(drip)
			flow, err := sender.DialUDP(netip.AddrPortFrom(victim.opts.Addr, 9))
			if err != nil {
				t.Fatal(err)
			}
			var flood sync.WaitGroup
			var flooded, burst atomic.Int64
			burst.Store(64)
			stop := make(chan struct{})
			t.Cleanup(func() {
				close(stop)
				flood.Wait()
				flow.Close()
			})
			flood.Go(func() {
				datagram := make([]byte, 1200)
				for {
					select {
					case <-stop:
						return
					default:
					}
					for range burst.Load() {
						if n, err := flow.Write(datagram); err == nil {
							flooded.Add(int64(n))
						}
					}
					time.Sleep(time.Millisecond)
				}
			})
			// More than all queues on the way hold: the relay's queue for a client, and the kernel's.
			testwait.Until(t, "the slow peer's path is full", func() error {
				n := flooded.Load()
				return testwait.Unless(n > 16<<20, "%d bytes were sent", n)
			})
			burst.Store(4) // keeps it full, and leaves the processors to the others
			exchange(t, sender, other, 1<<20)
			exchange(t, stranger, other, 1<<20)
			if got := slow.sent.Load(); got > flooded.Load()/2 {
				t.Errorf("the slow peer got %d of %d bytes: it was not slow", got, flooded.Load())
			}
		})
	}
}
