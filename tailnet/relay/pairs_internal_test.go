package relay

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tailscale.com/derp"
)

// BenchmarkPairs measures what one greedy pair leaves to twenty modest ones: each of these sends 2.2 Mbit/s, which
// comes back. All of them, and the relay, share one processor. The greedy one sends as fast as its connection takes
// packets. Run it with -benchtime 1x.
func BenchmarkPairs(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, greedy := range []int{0, 1} {
		b.Run(fmt.Sprintf("greedy=%d", greedy), func(b *testing.B) {
			for b.Loop() {
				measurePairs(b, greedy)
			}
		})
	}
}

// receive calls a function with each packet that comes to a node, until its connection ends.
func receive(running *sync.WaitGroup, n node, packet func(derp.ReceivedPacket)) {
	running.Go(func() {
		for {
			m, err := n.Recv()
			if err != nil {
				return // the end
			}
			if p, ok := m.(derp.ReceivedPacket); ok {
				packet(p)
			}
		}
	})
}

func measurePairs(b *testing.B, greedy int) {
	const modest, size, every, spell = 20, 1400, 5 * time.Millisecond, 5 * time.Second
	s, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var running sync.WaitGroup
	defer running.Wait()
	done := make(chan struct{})
	var bulk atomic.Int64
	for range greedy {
		near, c := native(b, s)
		far, cf := native(b, s)
		receive(&running, far, func(p derp.ReceivedPacket) { bulk.Add(int64(len(p.Data))) })
		running.Go(func() {
			packet := make([]byte, 8000)
			var err error
			for err == nil {
				err = near.Send(far.key, packet)
			}
		})
		defer cf.Close()
		defer c.Close()
	}
	var mu sync.Mutex
	var trips []time.Duration
	worst := 100.0
	var senders sync.WaitGroup
	begin := time.Now()
	for range modest {
		near, c := native(b, s)
		far, cf := native(b, s)
		defer cf.Close()
		defer c.Close()
		receive(&running, far, func(p derp.ReceivedPacket) { _ = far.Send(near.key, p.Data) }) // a lost one shows
		var got atomic.Int64
		receive(&running, near, func(p derp.ReceivedPacket) {
			trip := time.Since(begin) - time.Duration(binary.BigEndian.Uint64(p.Data))
			got.Add(1)
			mu.Lock()
			defer mu.Unlock()
			trips = append(trips, trip)
		})
		senders.Go(func() {
			packet, due := make([]byte, size), time.Now()
			for sent := 1; ; sent++ {
				binary.BigEndian.PutUint64(packet, uint64(time.Since(begin)))
				if near.Send(far.key, packet) != nil {
					return
				}
				due = due.Add(every)
				select {
				case <-time.After(time.Until(due)): // this is the pair's demand
				case <-done:
					mu.Lock()
					defer mu.Unlock()
					worst = min(worst, 100*float64(got.Load())/max(float64(sent), spell.Seconds()/every.Seconds()))
					return
				}
			}
		})
	}
	since := bulk.Load()
	time.Sleep(spell) // this is the measurement
	rate := float64(bulk.Load()-since) * 8 / 1e6 / spell.Seconds()
	close(done)
	senders.Wait()
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(trips)
	b.ReportMetric(worst, "%of-demand")
	b.ReportMetric(trips[len(trips)/2].Seconds()*1e3, "ms-median")
	b.ReportMetric(trips[len(trips)*95/100].Seconds()*1e3, "ms-95%")
	b.ReportMetric(rate, "Mbit/s-greedy")
}
