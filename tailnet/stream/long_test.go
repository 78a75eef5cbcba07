package stream_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestSimulatedLongPackets checks that packets through a relay are long, unless the peer does not take them, and that they are short again when they
// no longer go through it.
func TestSimulatedLongPackets(t *testing.T) {
	longest := func(p *path) (n int) {
		p.sizes.Range(func(size, _ any) bool { n = max(n, size.(int)); return true })
		return n
	}
	const size = 40 << 20
	relay := func() *path {
		return &path{delay: 100 * time.Millisecond, rate: 30e6, queue: time.Second, resend: 100 * time.Millisecond}
	}
	t.Run("relay", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := relay()
			download(t, relay(), p, size)
			if n := p.packets.Load(); longest(p) <= relayPacket*9/10 || n > 2*size/relayPacket {
				t.Errorf("%d packets, the longest of %d bytes", n, longest(p))
			}
		})
	})
	t.Run("full queues", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := relay()
			p.floods = 3
			download(t, relay(), p, size)
			if longest(p) <= relayPacket*9/10 {
				t.Errorf("the longest packet has %d bytes", longest(p))
			}
		})
	})
	t.Run("a peer that takes none", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := relay()
			p.longest = 1500
			download(t, relay(), p, size)
			if lost := p.dropped.Load(); lost != 2 || longest(p) <= 1300 {
				t.Errorf("%d packets were lost; the longest other has %d bytes", lost, longest(p))
			}
		})
	})
	t.Run("direct later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := relay()
			n, a, b := pair(t, p)
			defer n.close()
			n.a.Moved(addrB, true)
			begun, got := make(chan bool), make(chan int64)
			go func() {
				io.CopyN(io.Discard, b, size)
				close(begun)
				k, _ := io.Copy(io.Discard, b)
				got <- k
			}()
			if _, err := io.CopyN(a, forever{}, size); err != nil {
				t.Fatal(err)
			}
			<-begun
			if longest(p) <= relayPacket*9/10 {
				t.Errorf("the longest packet through the relay has %d bytes", longest(p))
			}
			p.sizes.Clear()
			n.a.Moved(addrB, false)
			if _, err := io.CopyN(a, forever{}, size); err != nil {
				t.Fatal(err)
			}
			a.Close()
			if k := <-got; k != size || longest(p) > 1500 {
				t.Errorf("%d bytes of %d arrived, the longest packet has %d", k, size, longest(p))
			}
		})
	})
}
