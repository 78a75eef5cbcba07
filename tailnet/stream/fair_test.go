package stream_test

import (
	"cmp"
	"container/heap"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

// wire is a bottleneck that several flows share: a rate, and a queue that drops what does not fit. One goroutine moves
// all packets, in the order of their times, and lets the bubble come to rest between two of them. A run is therefore
// the same each time.
type wire struct {
	rate   float64       // bytes per second
	queue  time.Duration // how long packets may wait
	trip   time.Duration // without queueing
	loss   float64       // of packets that did not overflow the queue
	random *rand.Rand

	free   time.Time // when the last packet in the queue has left
	events events
	serial int
	muxes  []*end
	wake   chan struct{}
	done   chan struct{}
	ended  sync.WaitGroup
}

// overhead is what an outer IPv6 and a UDP header, and WireGuard's, add to a packet.
const overhead = 60 + 20

// event is something that happens at a time.
type event struct {
	at     time.Time
	serial int // decides between events of one time
	do     func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(e[i].at.Compare(e[j].at), e[i].serial-e[j].serial) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func newWire(rate float64, trip, queue time.Duration) *wire {
	return &wire{
		rate: rate, queue: queue, trip: trip, random: rand.New(rand.NewPCG(1, 2)), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// at schedules an event.
func (w *wire) at(t time.Time, do func()) {
	w.serial++
	heap.Push(&w.events, event{t, w.serial, do})
}

// send puts a packet into the queue, and returns when it reaches the other end, or false if it is lost.
func (w *wire) send(n int) (time.Time, bool) {
	now := time.Now()
	if w.free.Before(now) {
		w.free = now
	}
	if w.free.Sub(now) > w.queue {
		return now, false
	}
	w.free = w.free.Add(time.Duration(float64(n) / w.rate * float64(time.Second)))
	if w.loss > 0 && w.random.Float64() < w.loss {
		return now, false
	}
	return w.free.Add(w.trip / 2), true
}

// run moves packets for some time.
func (w *wire) run(long time.Duration) {
	until := time.Now().Add(long)
	w.at(until, func() {})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for time.Now().Before(until) {
		synctest.Wait()
		for _, m := range w.muxes {
			m.fill()
		}
		for len(w.events) > 0 && !w.events[0].at.After(time.Now()) {
			heap.Pop(&w.events).(event).do()
		}
		timer.Reset(max(time.Until(w.events[0].at), 0))
		select {
		case <-timer.C:
		case <-w.wake:
		}
	}
}

func (w *wire) close() {
	for _, m := range w.muxes {
		m.mux.Close()
	}
	close(w.done)
	w.ended.Wait()
}

// end is a mux on the wire.
type end struct {
	w     *wire
	mux   *stream.Mux
	other *end
	self  netip.Addr
	queue bool // what it sends passes the bottleneck
	bufs  [][]byte
	sizes []int

	sent, lost int // packets
}

func (w *wire) end(self, peer netip.Addr, queue bool, accept accept) *end {
	if accept == nil {
		accept = func(uint16, *stream.Conn) func() { return nil }
	}
	e := &end{w: w, self: self, queue: queue, bufs: make([][]byte, 64), sizes: make([]int, 64)}
	for i := range e.bufs {
		e.bufs[i] = make([]byte, 2048)
	}
	e.mux = stream.New(stream.Options{
		Admit:  func(netip.Addr, uint16) bool { return true },
		Accept: func(_ netip.Addr, port uint16, c *stream.Conn) func() { return accept(port, c) },
		Header: func([]byte, netip.Addr) int { return 0 },
		Finish: func([]byte) {},
	})
	e.mux.Add(peer, stream.Group{})
	w.muxes = append(w.muxes, e)
	w.ended.Go(func() {
		for {
			select {
			case <-e.mux.Ready():
			case <-w.done:
				return
			}
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	})
	return e
}

// fill sends what is ready.
func (e *end) fill() {
	for {
		n := e.mux.Fill(e.bufs, e.sizes, 0)
		if n == 0 {
			return
		}
		for i := range n {
			at := time.Now().Add(e.w.trip / 2)
			if e.queue {
				var ok bool
				e.sent++
				if at, ok = e.w.send(e.sizes[i] + overhead); !ok {
					e.lost++
					continue
				}
			}
			p := append([]byte(nil), e.bufs[i][:e.sizes[i]]...)
			e.w.at(at, func() { e.other.mux.Receive(e.self, [][]byte{p}) })
		}
	}
}

// flow is one sender's use of the wire.
type flow interface {
	bytes() int64 // that have arrived
	packets() (sent, lost int)
}

// streamFlow is a stream that always has data to send.
type streamFlow struct {
	from *end
	got  atomic.Int64
}

func (f *streamFlow) bytes() int64              { return f.got.Load() }
func (f *streamFlow) packets() (sent, lost int) { return f.from.sent, f.from.lost }

func (w *wire) stream(t *testing.T) flow {
	f := &streamFlow{}
	to := w.end(addrB, addrA, false, func(_ uint16, c *stream.Conn) func() {
		return func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := c.Read(buf)
				f.got.Add(int64(n))
				if err != nil {
					return
				}
			}
		}
	})
	f.from = w.end(addrA, addrB, true, nil)
	f.from.other, to.other = to, f.from
	c, err := f.from.mux.Dial(addrB, 1)
	if err != nil {
		t.Fatal(err)
	}
	w.ended.Go(func() { io.Copy(c, forever{}) })
	return f
}

// call is a stream of small packets at a constant rate, as of a video call.
type call struct {
	w          *wire
	sent, lost int
	got        int64
	waits      []time.Duration
}

func (c *call) bytes() int64              { return c.got }
func (c *call) packets() (sent, lost int) { return c.sent, c.lost }

func (w *wire) call(rate, packets int) *call {
	c := &call{w: w}
	const pieces = 3 // of a picture, which is longer than one packet
	size := rate / 8 / packets / pieces
	var next func()
	next = func() {
		now := time.Now()
		for range pieces {
			c.sent++
			if at, ok := w.send(size); ok {
				c.got += int64(size)
				c.waits = append(c.waits, at.Sub(now)-w.trip/2)
			} else {
				c.lost++
			}
		}
		w.at(now.Add(time.Second/time.Duration(packets)), next)
	}
	next()
	return c
}

// mix starts flows: c is CUBIC, s a stream, v a call, and a comma lets two seconds pass.
func (w *wire) mix(t *testing.T, kinds string) (flows, streams []flow, voice *call) {
	t.Helper()
	for _, kind := range kinds {
		switch kind {
		case 'c':
			flows = append(flows, w.cubic())
		case 's':
			flows = append(flows, w.stream(t))
			streams = append(streams, flows[len(flows)-1])
		case 'v':
			voice = w.call(1.5e6, 50)
			flows = append(flows, voice)
		case ',':
			w.run(2 * time.Second)
		}
	}
	return flows, streams, voice
}

// TestSimulatedFair puts streams beside others on one bottleneck, and checks what each gets. Its table is that of
// docs/streams.md, in virtual time.
func TestSimulatedFair(t *testing.T) {
	const (
		fast, slow   = 100e6 / 8, 10e6 / 8
		begin, spell = 3 * time.Second, 15 * time.Second
	)
	for _, tc := range []struct {
		name        string
		rate        float64
		queue       time.Duration
		mix         string  // see wire.mix
		least, most float64 // the streams' part of what all carry; that of the last if all are streams
		lost        float64 // the part of packets that streams may lose
	}{
		{"CUBIC, then a stream, queue of 10 ms", fast, 10 * time.Millisecond, "c,s", 0.20, 0.70, 0.003},
		{"a stream, then CUBIC, queue of 10 ms", fast, 10 * time.Millisecond, "s,c", 0.30, 0.70, 0.003},
		{"CUBIC, then a stream, queue of 40 ms", fast, 40 * time.Millisecond, "c,s", 0.28, 0.65, 0.003},
		{"CUBIC, then a stream, queue of 200 ms", fast, 200 * time.Millisecond, "c,s", 0.30, 0.65, 0.01},
		{"two streams, queue of 10 ms", fast, 10 * time.Millisecond, "s,s", 0.40, 0.60, 0.003},
		{"two streams, queue of 40 ms", fast, 40 * time.Millisecond, "s,s", 0.40, 0.60, 0.003},
		{"two streams, queue of 200 ms", fast, 200 * time.Millisecond, "s,s", 0.40, 0.60, 0.003},
		{"four CUBIC, then four streams, queue of 10 ms", fast, 10 * time.Millisecond, "cccc,ssss", 0.30, 0.65, 0.01},
		{"four CUBIC, then four streams, queue of 40 ms", fast, 40 * time.Millisecond, "cccc,ssss", 0.30, 0.65, 0.01},
		{"a call, then a stream", slow, 40 * time.Millisecond, "v,s", 0.75, 0.88, 0.005},
		{"a stream alone, queue of 10 ms", fast, 10 * time.Millisecond, "s", 1, 1, 0.003},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(tc.rate, 40*time.Millisecond, tc.queue)
				defer w.close()
				flows, streams, voice := w.mix(t, tc.mix)
				if len(streams) == len(flows) {
					streams = streams[len(streams)-1:]
				}
				w.run(begin)
				all, ours, before := -total(flows), -total(streams), lost(streams)
				var calls part
				if voice != nil {
					voice.waits, calls = nil, lost([]flow{voice})
				}
				w.run(spell)
				all, ours = all+total(flows), ours+total(streams)
				share, gone := float64(ours)/float64(all), lost(streams).since(before)
				t.Logf("%.1f of %.1f Mbit/s, %.2f%% of packets lost", mbits(ours, spell), mbits(all, spell), 100*gone)
				if share < tc.least || share > tc.most {
					t.Errorf("streams have %.0f%%, want %.0f to %.0f%%", 100*share, 100*tc.least, 100*tc.most)
				}
				if gone > tc.lost {
					t.Errorf("streams lose %.2f%% of their packets, want at most %.2f%%", 100*gone, 100*tc.lost)
				}
				if carried := mbits(all, spell) * 1e6 / 8; carried < 0.85*tc.rate {
					t.Errorf("all carry %.1f Mbit/s of %.0f", mbits(all, spell), tc.rate*8/1e6)
				}
				if voice == nil {
					return
				}
				slices.Sort(voice.waits)
				late, missing := voice.waits[len(voice.waits)*95/100], lost([]flow{voice}).since(calls)
				t.Logf("the call: %.2f%% lost, 95 of 100 packets wait less than %v", 100*missing, late)
				if missing > 0.005 || late > 25*time.Millisecond {
					t.Errorf("a call loses %.2f%% of its packets, and waits %v", 100*missing, late)
				}
			})
		})
	}
}

// TestSimulatedRandomLoss checks that a stream alone takes random losses for what they are.
func TestSimulatedRandomLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(250e6/8, 40*time.Millisecond, 40*time.Millisecond)
		defer w.close()
		w.loss = 0.02
		f := w.stream(t)
		w.run(10 * time.Second)
		if rate := mbits(f.bytes(), 10*time.Second); rate < 150 {
			t.Errorf("a path of 250 Mbit/s that loses one packet in fifty carries %.0f", rate)
		}
	})
}

func mbits(bytes int64, d time.Duration) float64 { return float64(bytes) * 8 / 1e6 / d.Seconds() }

func total(flows []flow) (n int64) {
	for _, f := range flows {
		n += f.bytes()
	}
	return n
}

// part counts packets and those that were lost.
type part struct{ sent, lost int }

func lost(flows []flow) (p part) {
	for _, f := range flows {
		sent, lost := f.packets()
		p.sent, p.lost = p.sent+sent, p.lost+lost
	}
	return p
}

func (p part) since(q part) float64 { return float64(p.lost-q.lost) / float64(p.sent-q.sent) }
