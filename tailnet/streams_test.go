package tailnet_test

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

// TestStreamsOrTCP checks that connections are streams between nodes that both support them, and TCP otherwise.
func TestStreamsOrTCP(t *testing.T) {
	for _, relayOnly := range []bool{false, true} {
		for _, off := range []string{"neither", "the one that dials", "the one that listens"} {
			t.Run(map[bool]string{false: "direct", true: "relayed"}[relayOnly]+", off at "+off, func(t *testing.T) {
				r := tailnettest.NewRelay(t)
				node := func(name string) *tailnet.Node {
					t.Setenv(tailnet.StreamsVariable, map[bool]string{true: "off"}[off == name])
					return tailnettest.NewNode(t, r, tailnet.Options{RelayOnly: relayOnly})
				}
				a, b := node("the one that dials"), node("the one that listens")
				tailnettest.Echo(t, b, 7)
				tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundPorts(7, 8))
				c, err := a.Dial(timeout(t), "tcp", at(b, 7))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if got, want := tailnet.IsStream(c), off == "neither"; got != want {
					t.Errorf("the connection is a stream: %v", got)
				}
				exchange(t, c, 1<<20)
				if _, err := a.Dial(timeout(t), "tcp", at(b, 8)); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("dial an unserved port: %v", err)
				}
			})
		}
	}
}

// TestOpen checks that data written before there is a session arrives, and that Read returns a refusal.
func TestOpen(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundPorts(7, 8))
	c, err := a.Open(timeout(t), at(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, 100_000)
	refused, err := a.Open(timeout(t), at(b, 8))
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if _, err := refused.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("read from an unserved port: %v", err)
	}
	b.Remove(a.ID())
	a.Remove(b.ID())
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the stream outlives the peer")
	}
}
