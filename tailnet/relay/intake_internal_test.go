package relay

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"tailscale.com/derp"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// TestBurstArrives sends as much as a backlog holds at once, on a processor that the relay's goroutines share, and checks that the relay
// drops none of it.
func TestBurstArrives(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, sender := native(t, s)
	receiver, _ := native(t, s)

	const packets, size = 2500, 1400
	var burst bytes.Buffer
	for i := range packets {
		burst.Write(packetTo(receiver.id, binary.BigEndian.AppendUint32(nil, uint32(i)), size))
	}
	go func() {
		if _, err := sender.Write(burst.Bytes()); err != nil {
			t.Errorf("send: %v", err)
		}
	}()
	for want := range uint32(packets) {
		m, err := receiver.Recv()
		if err != nil {
			t.Fatalf("after %d packets: %v", want, err)
		}
		p, ok := m.(derp.ReceivedPacket)
		if !ok {
			t.Fatalf("received %T, want a packet", m)
		}
		if got := binary.BigEndian.Uint32(p.Data); got != want {
			t.Fatalf("received packet %d, want %d", got, want)
		}
	}
}

// node is a client of the relay.
type node struct {
	*derp.Client
	key key.NodePublic
	id  nodeID
}

// native connects a client as nodes do, by an upgrade, and also returns its connection.
func native(t testing.TB, s *Server) (node, net.Conn) {
	t.Helper()
	c := dial(t, s)
	var err error
	secret := key.NewNode()
	n := node{key: secret.Public(), id: idOf(secret.Public())}
	s.Admit(tailnet.PublicKey(n.id))
	fmt.Fprintf(c, "GET /derp HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: DERP\r\n%s: 1\r\n\r\n", derp.FastStartHeader)
	if n.Client, err = derp.NewClient(secret, c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), t.Logf); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Recv(); err != nil {
		t.Fatalf("the relay does not welcome the client: %v", err)
	}
	return n, c
}

func idOf(k key.NodePublic) (id nodeID) {
	k.AppendTo(id[:0])
	return id
}

// frame returns a frame of DERP.
func frame(kind derp.FrameType, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	return slices.Concat([]byte{byte(kind)}, binary.BigEndian.AppendUint32(nil, uint32(len(body))), body)
}

// packetTo returns the frame of a packet of the given size that begins with start.
func packetTo(to nodeID, start []byte, size int) []byte {
	return frame(derp.FrameSendPacket, to[:], start, make([]byte, size-len(start)))
}

func TestFrames(t *testing.T) {
	t.Parallel()
	me, to := nodeID{1}, nodeID{2}
	hello := frame(derp.FrameClientInfo, me[:], make([]byte, 60))
	ping := frame(derp.FramePing, make([]byte, 8))
	for _, c := range []struct {
		name    string
		input   []byte
		greeted bool
		sizes   []int
	}{
		{"nothing", nil, false, nil},
		{"half a hello", hello[:50], false, nil},
		{"a hello", hello, true, nil},
		{"packets", slices.Concat(hello, ping, packetTo(to, nil, 100), ping, packetTo(to, nil, 0)), true, []int{137, 37}},
		{"packet before the hello", slices.Concat(packetTo(to, nil, 100), hello), false, nil},
		{"packet without a receiver", slices.Concat(hello, frame(derp.FrameSendPacket, to[:20]), packetTo(to, nil, 1)), true, []int{38}},
		{"second hello", slices.Concat(hello, frame(derp.FrameClientInfo, to[:]), packetTo(to, nil, 1)), true, []int{38}},
		{"websocket", slices.Concat([]byte{0x82, 0xfe, 0, 90}, hello), false, nil},
	} {
		for _, step := range []int{1, 7, len(c.input) + 1} {
			var f frames
			var sizes []int
			for chunk := range slices.Chunk(c.input, step) {
				f.follow(chunk, func(node nodeID, size int) {
					if node != to {
						t.Errorf("%s: packet to %x", c.name, node)
					}
					sizes = append(sizes, size)
				})
			}
			if f.greeted != c.greeted || f.greeted && f.node != me {
				t.Errorf("%s, %d bytes at a time: greeted %v by %x, want %v", c.name, step, f.greeted, f.node[:1], c.greeted)
			}
			if !slices.Equal(sizes, c.sizes) {
				t.Errorf("%s, %d bytes at a time: packets of %v bytes, want %v", c.name, step, sizes, c.sizes)
			}
		}
	}
}

// FuzzFrames checks that it does not matter in which pieces a node's bytes arrive.
func FuzzFrames(f *testing.F) {
	me := nodeID{1}
	f.Add(slices.Concat(frame(derp.FrameClientInfo, me[:], make([]byte, 60)), packetTo(me, nil, 9), packetTo(me, nil, 0)), 3)
	f.Add([]byte("\x04\xff\xff\xff\xff"), 1)
	f.Fuzz(func(t *testing.T, input []byte, step int) {
		parse := func(step int) (all frames, packets []string) {
			for chunk := range slices.Chunk(input, step) {
				all.follow(chunk, func(to nodeID, size int) { packets = append(packets, fmt.Sprintf("%x %d", to, size)) })
			}
			return all, packets
		}
		whole, want := parse(len(input) + 1)
		pieces, got := parse(min(max(step, 1), len(input)+1))
		if whole.greeted != pieces.greeted || whole.node != pieces.node || !slices.Equal(got, want) {
			t.Errorf("in pieces of %d bytes: %v, want %v", step, got, want)
		}
	})
}

// TestImpostorIsNotKnown sends another node's key in a client info, as anyone can, and checks that the node's own backlog stays in use.
func TestImpostorIsNotKnown(t *testing.T) {
	t.Parallel()
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	victim, _ := native(t, s)
	testwait.Until(t, "the victim is connected", func() error {
		return testwait.Unless(s.backlogs.of(victim.id) != nil, "the relay has nothing for it")
	})
	own := s.backlogs.of(victim.id)

	c := dial(t, s)
	fmt.Fprintf(c, "GET /derp HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: DERP\r\n\r\n%s", frame(derp.FrameClientInfo, victim.id[:], make([]byte, 60)))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the relay does not end the impostor's connection")
	}
	if s.backlogs.of(victim.id) != own {
		t.Error("a node that is not admitted has replaced another's backlog")
	}
}

// TestNodeIsKnownWhileAdmitted checks that a node is known from when the library reads on after the whole client info until the library closes
// the connection, even if reading has not failed.
func TestNodeIsKnownWhileAdmitted(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	me, table := nodeID{1}, &backlogs{by: map[nodeID]*backlog{}}
	own := &backlog{Conn: ours, table: table}
	hello := frame(derp.FrameClientInfo, me[:], make([]byte, 60))
	from := &intake{own: own, from: io.MultiReader(bytes.NewReader(hello[:40]), bytes.NewReader(hello[40:]), bytes.NewReader(frame(derp.FramePong, make([]byte, 8))))}
	for i, want := range []*backlog{nil, nil, own} {
		if _, err := from.Read(make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
		if got := table.of(me); got != want {
			t.Errorf("after %d reads the table has %p, want %p", i+1, got, want)
		}
	}
	newer := &backlog{Conn: ours, table: table}
	table.add(me, newer)
	own.Close()
	if table.of(me) != newer {
		t.Error("the end of an old connection has removed the new one")
	}
	newer.Close()
	if table.of(me) != nil {
		t.Error("a closed connection is still known")
	}
}

// dial connects to the relay. The connection does not outlast the test, or a minute.
func dial(t testing.TB, s *Server) net.Conn {
	t.Helper()
	served := httptest.NewServer(s.Handler())
	t.Cleanup(served.Close)
	c, err := net.Dial("tcp", served.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// TestSendersDoNotWaitForTheNetwork checks when a sender waits: not for a node whose backlog is full, and not for ever for packets that
// the library drops.
func TestSendersDoNotWaitForTheNetwork(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	table := &backlogs{}
	full := &backlog{Conn: ours, table: table}
	defer full.Close()
	if _, err := full.Write(make([]byte, maxBacklog)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		full.owe(maxOwed) // blocks for ever if it waits for the network
	}
	dropped := &backlog{Conn: ours, table: table}
	for range 3 {
		dropped.owe(maxOwed + 1)
	}
	if dropped.owed != maxOwed+1 {
		t.Errorf("after the last wait %d bytes are owed, want %d", dropped.owed, maxOwed+1)
	}
}
