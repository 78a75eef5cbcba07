package tailnet_test

import (
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

// BenchmarkStartToDial measures the time from creating a node to its first connection, as for a command that reaches one
// peer.
func BenchmarkStartToDial(b *testing.B) {
	for name, relayOnly := range paths {
		b.Run(name, func(b *testing.B) {
			r := tailnettest.NewRelay(b)
			far := tailnettest.NewNode(b, r, tailnet.Options{})
			tailnettest.Echo(b, far, 7)
			if err := r.WaitConnected(b.Context(), far.PublicKey(), true); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				near, err := tailnet.New(tailnet.Options{ID: uuid.New(), RelayOnly: relayOnly})
				if err != nil {
					b.Fatal(err)
				}
				r.Admit(near.PublicKey())
				if err := near.SetRelayMap(r.Map, r.URL); err != nil {
					b.Fatal(err)
				}
				introduceOnce(b, near, far)
				c, err := near.Dial(b.Context(), "tcp", at(far, 7))
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				c.Close()
				near.Close()
				far.Remove(near.ID())
				b.StartTimer()
			}
		})
	}
}

var paths = map[string]bool{"direct": false, "relayed": true}

func introduceOnce(b *testing.B, near, far *tailnet.Node) {
	b.Helper()
	if err := far.Upsert(tailnet.Peer{NodeInfo: near.Info(), Inbound: tailnet.InboundAll}); err != nil {
		b.Fatal(err)
	}
	if err := near.Upsert(tailnet.Peer{NodeInfo: far.Info()}); err != nil {
		b.Fatal(err)
	}
}

// connected returns a connection from one node to another over a settled path.
func connected(b *testing.B, relayOnly bool, serve func(net.Conn)) net.Conn {
	b.Helper()
	r := tailnettest.NewRelay(b)
	near := tailnettest.NewNode(b, r, tailnet.Options{RelayOnly: relayOnly})
	far := tailnettest.NewNode(b, r, tailnet.Options{RelayOnly: relayOnly})
	l, err := far.Listen(7)
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			serve(c)
			c.Close()
		}
	}()
	tailnettest.Introduce(b, near, far, tailnet.InboundNone, tailnet.InboundAll)
	if !relayOnly {
		tailnettest.WaitPath(b, near, far, tailnet.PathDirect)
	}
	c, err := near.Dial(b.Context(), "tcp", at(far, 7))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func BenchmarkBulk(b *testing.B) {
	for name, relayOnly := range paths {
		b.Run(name, func(b *testing.B) {
			c := connected(b, relayOnly, func(c net.Conn) { io.Copy(io.Discard, c) })
			buf := make([]byte, 256<<10)
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(residentPeak(b))/(1<<20), "peak-MB")
		})
	}
}

func BenchmarkEcho(b *testing.B) {
	for name, relayOnly := range paths {
		b.Run(name, func(b *testing.B) {
			c := connected(b, relayOnly, func(c net.Conn) { io.Copy(c, c) })
			buf := make([]byte, 1)
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := c.Read(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIdleNode reports what each of 20 nodes with a relay connection adds to the process.
func BenchmarkIdleNode(b *testing.B) {
	const nodes = 20
	for b.Loop() {
		r := tailnettest.NewRelay(b)
		debug.FreeOSMemory()
		before, goroutines := resident(b, "VmRSS:"), runtime.NumGoroutine()
		var all []*tailnet.Node
		for range nodes {
			n := tailnettest.NewNode(b, r, tailnet.Options{})
			if err := r.WaitConnected(b.Context(), n.PublicKey(), true); err != nil {
				b.Fatal(err)
			}
			all = append(all, n)
		}
		debug.FreeOSMemory()
		b.ReportMetric(float64(resident(b, "VmRSS:")-before)/nodes/(1<<20), "MB/node")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/nodes, "goroutines/node")
		for _, n := range all {
			n.Close()
		}
	}
}

func residentPeak(b *testing.B) int64 { return resident(b, "VmHWM:") }

// resident returns a field of this process's memory status in bytes, or 0 without /proc.
func resident(b *testing.B, field string) int64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb << 10
		}
	}
	return 0
}
