package stream_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

// TestSimulatedFarther echoes data over paths whose round trips are longer than this end expects: before the first answer, on a path that packets have just
// moved to, and on one that has become longer.
func TestSimulatedFarther(t *testing.T) {
	const near, far = 5 * time.Millisecond, 300 * time.Millisecond
	silence := func(n *network) {
		n.cut(true)
		time.Sleep(time.Second)
		n.cut(false)
	}
	for _, tc := range []struct {
		name  string
		first time.Duration
		then  func(*network)
	}{
		{"from the start", far, func(*network) {}},
		{"moved to a longer path", near, func(n *network) { n.longer(far); n.a.Moved(addrB, false); n.b.Moved(addrA, false) }},
		{"moved before an answer", far, func(n *network) { n.a.Moved(addrB, true); n.a.Moved(addrB, false); n.b.Moved(addrA, false) }},
		{"longer without notice", near, func(n *network) { n.longer(far) }},
		{"moved to a longer path after silence", near, func(n *network) { silence(n); n.longer(far); n.a.Moved(addrB, true); n.b.Moved(addrA, true) }},
		{"longer after silence, without notice", near, func(n *network) { silence(n); n.longer(far) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 16 << 20
				p := func() *path { return &path{delay: tc.first, rate: 3e6, queue: time.Second} }
				n := newNetwork(t, p(), p(), nil, func(_ uint16, c *stream.Conn) func() {
					return func() {
						io.Copy(c, c)
						c.CloseWrite()
					}
				})
				defer n.close()
				c, err := n.a.Dial(addrB, 1)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				go func() {
					io.CopyN(c, forever{}, size/2)
					tc.then(n)
					io.CopyN(c, forever{}, size/2)
					c.CloseWrite()
				}()
				c.SetReadDeadline(time.Now().Add(time.Minute))
				got, err := io.Copy(io.Discard, c)
				if err != nil || got != size {
					t.Fatalf("%d bytes of %d came back: %v", got, size, err)
				}
				t.Logf("took %v; %.1f%% more bytes", time.Since(begin).Round(time.Millisecond), 100*(float64(n.ab.bytes.Load())/size-1))
				if sent := n.ab.bytes.Load(); sent > 3*size {
					t.Errorf("sent %d bytes to carry %d", sent, size)
				}
			})
		})
	}
}

// longer changes the delay of both directions.
func (n *network) longer(delay time.Duration) {
	for _, p := range []*path{n.ab, n.ba} {
		p.mu.Lock()
		p.delay = delay
		p.mu.Unlock()
	}
}

func (n *network) cut(yes bool) {
	n.ab.cut.Store(yes)
	n.ba.cut.Store(yes)
}
