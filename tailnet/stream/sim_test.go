package stream_test

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

var (
	addrA = netip.MustParseAddr("fd00::a")
	addrB = netip.MustParseAddr("fd00::b")
)

// path is one direction of a simulated network.
type path struct {
	mu      sync.Mutex // guards delay, rate and until once packets travel
	delay   time.Duration
	loss    float64
	rate    float64       // bytes per second; 0: unlimited
	queue   time.Duration // how long packets may wait for the rate
	longest int           // bytes; longer packets are lost; 0: unlimited
	floods  int           // how often a queue overflows when a packet over 1500 bytes comes: it is lost, and those behind it
	resend  time.Duration // a TCP connection carries the packets: a lost one arrives this much later, and the next ones wait for it

	// young is the round trip of a TCP connection from a relay that begins with ten packets a round trip and doubles until it has reached
	// rate. The relay's queue has room for relayQueue packets.
	young time.Duration

	until time.Time // when packets arrive at the earliest: the receiver sleeps, and they wait in its socket

	cut              atomic.Bool
	packets, dropped atomic.Int64
	sizes            sync.Map // the lengths of packets that arrive
	bytes            atomic.Int64
	waited           atomic.Int64 // the longest, in nanoseconds
}

// network connects two muxes. Tests run it on virtual time.
type network struct {
	a, b   *stream.Mux
	ab, ba *path
	wg     sync.WaitGroup
	done   chan struct{}
}

const (
	relayQueue  = 512
	relayPacket = 8000 // stream.Options.RelayPacket
)

type accept func(port uint16, c *stream.Conn) func()

func newNetwork(t testing.TB, ab, ba *path, acceptA, acceptB accept, tune ...func(*stream.Options)) *network {
	t.Helper()
	n := &network{ab: ab, ba: ba, done: make(chan struct{})}
	mux := func(f accept) *stream.Mux {
		opts := stream.Options{
			Admit:       func(_ netip.Addr, port uint16) bool { return port != forbidden },
			Accept:      func(_ netip.Addr, port uint16, c *stream.Conn) func() { return f(port, c) },
			Header:      func([]byte, netip.Addr) int { return 0 },
			Finish:      func([]byte) {},
			RelayPacket: relayPacket,
		}
		for _, f := range tune {
			f(&opts)
		}
		return stream.New(opts)
	}
	if acceptA == nil {
		acceptA = func(uint16, *stream.Conn) func() { return nil }
	}
	n.a, n.b = mux(acceptA), mux(acceptB)
	n.a.Add(addrB, stream.Group{})
	n.b.Add(addrA, stream.Group{})
	n.a.Moved(addrB, ab.resend != 0)
	n.b.Moved(addrA, ba.resend != 0)
	n.wg.Go(func() { n.carry(n.a, n.b, addrA, ab) })
	n.wg.Go(func() { n.carry(n.b, n.a, addrB, ba) })
	return n
}

// forbidden is a port that peers must not reach.
const forbidden = 666

func (n *network) close() {
	n.a.Close()
	n.b.Close()
	close(n.done)
	n.wg.Wait()
}

type transit struct {
	at time.Time
	b  []byte
}

// deliver hands packets over when their time has come, in batches.
func deliver(way <-chan transit, to *stream.Mux, src netip.Addr) {
	var batch [][]byte
	for packet := range way {
		if d := time.Until(packet.at); d > 0 {
			time.Sleep(d)
		}
		batch = append(batch[:0], packet.b)
	more:
		for len(batch) < 64 {
			select {
			case next, ok := <-way:
				if !ok {
					break more
				}
				if time.Until(next.at) > 0 {
					to.Receive(src, batch)
					batch = batch[:0]
					time.Sleep(time.Until(next.at))
				}
				batch = append(batch, next.b)
			default:
				break more
			}
		}
		to.Receive(src, batch)
	}
}

// bottleneck is the queue of a path with a rate.
type bottleneck struct {
	first   time.Time   // when the first packet came
	free    time.Time   // when the last packet has left
	waiting []time.Time // of a young connection: when the packets in the queue will have left
}

// pass returns when a packet has left the queue, or false if there is no room for it. A rate of 0 has no queue.
func (q *bottleneck) pass(p *path, rate float64, size int, now time.Time) (at time.Time, room bool) {
	full := q.free.Sub(now) > p.queue
	if p.young != 0 {
		for len(q.waiting) > 0 && !q.waiting[0].After(now) {
			q.waiting = q.waiting[1:]
		}
		full = len(q.waiting) == relayQueue
		if q.first.IsZero() {
			q.first = now
		}
		begin := 10 * float64(size) / p.young.Seconds()
		rate = min(rate, begin*math.Exp2(float64(max(q.free.Sub(q.first), now.Sub(q.first)))/float64(p.young)))
	}
	if rate <= 0 {
		return now, true
	}
	if q.free.Before(now) {
		q.free = now
	}
	if full {
		return now, false
	}
	q.free = q.free.Add(time.Duration(float64(size) / rate * float64(time.Second)))
	if p.young != 0 {
		q.waiting = append(q.waiting, q.free)
	}
	p.waited.Store(max(p.waited.Load(), int64(q.free.Sub(now))))
	return q.free, true
}

// carry moves packets from one mux to the other until the network closes.
func (n *network) carry(from, to *stream.Mux, src netip.Addr, p *path) {
	way := make(chan transit, 1<<20)
	defer close(way)
	n.wg.Go(func() { deliver(way, to, src) })
	bufs, sizes := make([][]byte, 128), make([]int, 128)
	for i := range bufs {
		bufs[i] = make([]byte, relayPacket)
	}
	var (
		q               bottleneck
		arrived         time.Time
		floods, flooded int // how often, and how many packets more
	)
	for {
		select {
		case <-from.Ready():
		case <-n.done:
			return
		}
		count := from.Fill(bufs, sizes, 0)
		now := time.Now()
		for i := range count {
			p.packets.Add(1)
			p.bytes.Add(int64(sizes[i]))
			if flooded == 0 && floods < p.floods && sizes[i] > 1500 {
				floods, flooded = floods+1, 20
			}
			if flooded > 0 {
				flooded--
				p.dropped.Add(1)
				continue
			}
			lost := p.loss > 0 && rand.Float64() < p.loss
			if p.cut.Load() || lost && p.resend == 0 || p.longest != 0 && sizes[i] > p.longest {
				p.dropped.Add(1)
				continue
			}
			p.mu.Lock()
			rate, delay, until := p.rate, p.delay, p.until
			p.mu.Unlock()
			at, room := q.pass(p, rate, sizes[i], now)
			if !room {
				p.dropped.Add(1)
				continue
			}
			at = at.Add(delay)
			if at.Before(until) {
				at = until
			}
			if p.resend != 0 {
				if lost {
					at = at.Add(p.resend)
				}
				if at.Before(arrived) {
					at = arrived
				}
				arrived = at
			}
			p.sizes.Store(sizes[i], true)
			way <- transit{at, append([]byte(nil), bufs[i][:sizes[i]]...)}
		}
	}
}
