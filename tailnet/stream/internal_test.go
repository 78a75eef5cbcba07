package stream

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

var peerAddr = netip.MustParseAddr("fd00::b")

// hostile is a mux whose peer the test plays.
type hostile struct {
	*Mux
	t      testing.TB
	number uint64
	conns  chan *Conn
}

func newHostile(t testing.TB) *hostile {
	h := &hostile{t: t, conns: make(chan *Conn, 10_000)}
	h.Mux = New(Options{
		Admit:      func(_ netip.Addr, port uint16) bool { return port != 666 },
		Accept:     func(_ netip.Addr, _ uint16, c *Conn) func() { return func() { h.conns <- c } },
		Header:     func([]byte, netip.Addr) int { return 0 },
		Finish:     func([]byte) {},
		RecvBuffer: 256 << 10,
	})
	h.Add(peerAddr, Group{})
	return h
}

// send delivers frames to the mux in the next packet.
func (h *hostile) send(frames []byte) { h.sendFrom(peerAddr, frames) }

func (h *hostile) sendFrom(peer netip.Addr, frames []byte) {
	h.number++
	h.Receive(peer, [][]byte{append(header{epoch: 7, number: h.number}.append(nil), frames...)})
}

// sent returns the packets that the mux sends now.
func (h *hostile) sent() (packets [][]byte) {
	bufs, sizes := [][]byte{make([]byte, 2048)}, []int{0}
	for h.Fill(bufs, sizes, 0) > 0 {
		packets = append(packets, bytes.Clone(bufs[0][:sizes[0]]))
	}
	return packets
}

// theirs returns the ID of a stream that the test's end has opened.
func theirs(n uint64) streamID { return streamID{number: n, ours: true} }

func data(id streamID, port uint16, offset uint64, b []byte, fin bool) []byte {
	return append(appendData(nil, id, true, port, offset, len(b), fin), b...)
}

// TestFormat pins the wire format: today's encoding must match the one at the time the version got its number.
func TestFormat(t *testing.T) {
	ours, other := streamID{number: 300, ours: true}, streamID{number: 5}
	var b strings.Builder
	show := func(name string, p []byte) { fmt.Fprintf(&b, "%-28s %s\n", name, hex.EncodeToString(p)) }
	show("header", header{epoch: 0x01020304, peer: 0x0a0b0c0d, number: 0x112233445566}.append(nil))
	show("ack of 0 to 9", appendAck(nil, ranges{{0, 10}}, 1234, 256))
	show("ack with two gaps", appendAck(nil, ranges{{3, 5}, {100, 101}, {200, 1000}}, 0, 256))
	show("ping", []byte{kindPing})
	show("window", appendWindow(nil, ours, 1<<24))
	show("stop", appendStop(nil, other))
	show("reset: refused", appendReset(nil, other, reasonRefused))
	show("reset: aborted", appendReset(nil, ours, reasonAborted))
	show("pad", []byte{kindPad, 0, 0})
	show("data", append(appendData(nil, other, false, 0, 70_000, 3, false), "abc"...))
	show("data, opens port 22", append(appendData(nil, ours, true, 22, 0, 3, false), "abc"...))
	show("data, the end", appendData(nil, other, false, 0, 1<<40, 0, true))
	show("data, opens and ends", appendData(nil, ours, true, 65535, 0, 0, true))
	const file = "testdata/format.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s\nA changed format needs another Version, and nodes that speak both.", got, want)
	}
	for line := range strings.Lines(string(want)) {
		p, err := hex.DecodeString(line[29 : len(line)-1])
		if err != nil {
			t.Fatal(err)
		}
		if line[:6] == "header" {
			if h, rest, err := parseHeader(p); err != nil || len(rest) != 0 || h != (header{0x01020304, 0x0a0b0c0d, 0x112233445566}) {
				t.Errorf("header: %+v, %v", h, err)
			}
			continue
		}
		var f frame
		if rest, err := f.parse(p); err != nil || len(rest) != 0 {
			t.Errorf("%s: %v, %d bytes left", line[:28], err, len(rest))
		}
	}
}

func TestAckTellsWhatArrived(t *testing.T) {
	for range 2000 {
		var received ranges
		at := rand.Uint64N(1000)
		for range 1 + rand.IntN(maxRanges) {
			at += 1 + rand.Uint64N(300)
			end := at + 1 + rand.Uint64N(3000)
			received.add(at, end)
			at = end
		}
		var f frame
		rest, err := f.parse(appendAck(nil, received, 5, 512))
		if err != nil || len(rest) != 0 {
			t.Fatalf("%v: %v", received, err)
		}
		got := ranges(slices.Clone(f.acked[:f.spans]))
		slices.Reverse(got)
		if tail := received[len(received)-len(got):]; !slices.Equal(got, tail) {
			t.Fatalf("got %v, want the end of %v", got, received)
		}
	}
}

// TestRanges compares ranges with a naive set.
func TestRanges(t *testing.T) {
	for range 300 {
		var r ranges
		var plain [64]bool
		for range 40 {
			start := rand.Uint64N(60)
			end := start + rand.Uint64N(64-start)
			if rand.IntN(3) == 0 {
				r.remove(start, end)
				for i := start; i < end; i++ {
					plain[i] = false
				}
			} else {
				isNew := slices.Contains(plain[start:end], false)
				if got := r.add(start, end); got != isNew {
					t.Fatalf("add %d-%d: got %v", start, end, got)
				}
				for i := start; i < end; i++ {
					plain[i] = true
				}
			}
			for i := range plain {
				if r.has(uint64(i), uint64(i)+1) != plain[i] {
					t.Fatalf("%v: %d is wrong", r, i)
				}
			}
			for i := 1; i < len(r); i++ {
				if r[i-1].end >= r[i].start {
					t.Fatalf("%v is not in order", r)
				}
			}
		}
	}
}

// TestHostilePeer checks what a peer that violates the protocol can make this end do and store.
func TestHostilePeer(t *testing.T) {
	run := func(name string, f func(t *testing.T, h *hostile)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHostile(t)
				defer h.Close()
				f(t, h)
			})
		})
	}
	open := func(h *hostile) *Conn {
		h.send(data(theirs(0), 1, 0, []byte("hi"), false))
		return <-h.conns
	}
	broken := func(t *testing.T, c *Conn) {
		t.Helper()
		io.CopyN(io.Discard, c, int64(c.Buffered()))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the stream continues")
		}
	}
	run("beyond the window", func(t *testing.T, h *hostile) {
		c := open(h)
		h.send(data(theirs(0), 1, 1<<30, []byte("x"), false))
		broken(t, c)
	})
	run("an end before what came", func(t *testing.T, h *hostile) {
		c := open(h)
		h.send(data(theirs(0), 1, 0, nil, true))
		if _, err := io.ReadAll(c); err == nil {
			t.Error("a stream with two ends is accepted")
		}
	})
	run("bytes after the end", func(t *testing.T, h *hostile) {
		c := open(h)
		h.send(data(theirs(0), 1, 2, nil, true))
		h.send(data(theirs(0), 1, 2, []byte("more"), false))
		broken(t, c)
	})
	run("crumbs", func(t *testing.T, h *hostile) {
		c := open(h)
		for i := range uint64(60_000) {
			h.send(data(theirs(0), 1, 4+2*i, []byte("x"), false))
		}
		broken(t, c)
	})
	run("too many streams", func(t *testing.T, h *hostile) {
		for i := range uint64(3 * maxStreams) {
			h.send(data(theirs(i), 1, 0, nil, false))
		}
		synctest.Wait()
		if n := len(h.conns); n > maxStreams {
			t.Errorf("%d streams are open", n)
		}
		refused := 0
		for _, p := range h.sent() {
			_, frames, _ := parseHeader(p)
			var f frame
			for len(frames) > 0 {
				var err error
				if frames, err = f.parse(frames); err != nil {
					t.Fatal(err)
				}
				if f.kind == kindReset && f.offset == reasonRefused {
					refused++
				}
			}
		}
		if refused < maxStreams {
			t.Errorf("%d were refused", refused)
		}
	})
	run("numbers far apart", func(t *testing.T, h *hostile) {
		for i := range uint64(1000) {
			h.send(data(theirs(i*1000), 1, 0, nil, false))
		}
		if n := len(h.assoc(peerAddr).seen); n > maxRanges+1000 {
			t.Errorf("%d spans of streams are remembered", n)
		}
	})
	run("memory", func(t *testing.T, h *hostile) {
		for i := range uint64(100) {
			for offset := uint64(0); offset < 1<<20; offset += 1000 {
				h.send(data(theirs(i), 1, offset, make([]byte, 1000), false))
			}
		}
		a := h.assoc(peerAddr)
		held := 0
		for _, c := range a.streams {
			held += len(c.in.list) * blockSize
		}
		if limit := (budgetWindows*h.opts.RecvBuffer + 100*leastWindow) * 5 / 4; held > limit {
			t.Errorf("%d bytes are kept; want at most %d", held, limit)
		}
	})
	run("memory of many peers", func(t *testing.T, h *hostile) {
		const peers = 50
		limit := 8 << 20
		h.opts.MaxHeld = limit
		peer := func(i int) netip.Addr { return netip.AddrFrom16([16]byte{0: 0xfd, 14: 1, 15: byte(i)}) }
		for i := range peers {
			h.Add(peer(i), Group{})
			for id := range uint64(20) {
				for offset := uint64(1); offset < leastWindow; offset += 1000 { // the first byte never comes
					h.sendFrom(peer(i), data(theirs(id), 1, offset, make([]byte, min(1000, leastWindow-offset)), false))
				}
			}
		}
		synctest.Wait()
		held := 0
		for i := range peers {
			for _, c := range h.assoc(peer(i)).streams {
				for _, block := range c.in.list {
					if block != nil {
						held += blockSize
					}
				}
			}
		}
		if most := limit + peers*leastWindow; held > most || held < limit/2 {
			t.Errorf("%d bytes are kept; want at most %d, and half of %d at least", held, most, limit)
		}
		if n := int(h.held.Load()); n != held {
			t.Errorf("%d bytes are counted, %d are kept", n, held)
		}
		for len(h.conns) > 0 {
			(<-h.conns).Close()
		}
		c := open(h)
		for i := range uint64(100) {
			h.send(data(theirs(0), 1, 2+i*1000, make([]byte, 1000), false))
			if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		if n := h.held.Load(); n != 0 {
			t.Errorf("%d bytes are counted when nothing is kept", n)
		}
	})
	run("memory of a group", func(t *testing.T, h *hostile) {
		const peers = 50
		limit := 32 << 20
		h.opts.MaxHeld = limit
		peer := func(i int) netip.Addr { return netip.AddrFrom16([16]byte{0: 0xfd, 14: 1, 15: byte(i)}) }
		hog := func(i int, streams uint64) {
			for id := range streams {
				for offset := uint64(1); offset < leastWindow; offset += 1000 { // the first byte never comes
					h.sendFrom(peer(i), data(theirs(id), 1, offset, make([]byte, min(1000, leastWindow-offset)), false))
				}
			}
		}
		const user, other = 1, 2
		for i := range peers {
			h.Add(peer(i), Group{user})
			hog(i, 20)
		}
		synctest.Wait()
		held := int(h.held.Load())
		if most := limit/2 + peers*leastWindow*5/4; held > most || held < limit/2 {
			t.Errorf("all peers of one group hold %d bytes; want %d to %d", held, limit/2, most)
		}
		if n := int(h.groups[Group{user}].held.Load()); n != held {
			t.Errorf("the group is counted with %d bytes, all with %d", n, held)
		}

		// Another group's only peer has its full window, and may use most of what is left.
		h.Add(peer(peers), Group{other})
		hog(peers, 160)
		synctest.Wait()
		if got, least := int(h.held.Load())-held, (limit-held)*2/5; got < least {
			t.Errorf("the peer of another group holds %d bytes; want at least %d", got, least)
		}
		for len(h.conns) > 0 {
			(<-h.conns).Close()
		}
		for i := range peers + 1 {
			h.Remove(peer(i))
		}
		if n := len(h.groups); n != 0 {
			t.Errorf("%d groups are known after their peers are gone", n)
		}
	})
	run("a group's window", func(t *testing.T, h *hostile) {
		h.opts.MaxHeld = 8 << 20
		window := func(peer netip.Addr) uint64 {
			c, err := h.Dial(peer, 1)
			if err != nil {
				t.Fatal(err)
			}
			return c.granted
		}
		near, far := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
		h.Add(near, Group{1})
		h.Add(far, Group{2})
		h.Add(netip.MustParseAddr("fd00::3"), Group{1})
		h.assoc(netip.MustParseAddr("fd00::3")).count(4 << 20)
		if a, b := window(near), window(far); a != leastWindow || b != uint64(h.opts.RecvBuffer) {
			t.Errorf("while a group holds half of the memory, its others get %d and strangers %d bytes; want %d and %d", a, b, leastWindow, h.opts.RecvBuffer)
		}
	})
	run("memory of refused streams", func(t *testing.T, h *hostile) {
		h.opts.Accept = func(netip.Addr, uint16, *Conn) func() { return nil }
		for id := range uint64(100) {
			h.send(data(theirs(id), 1, 0, make([]byte, 1000), false))
		}
		if n := h.held.Load(); n != 0 {
			t.Errorf("%d bytes are counted when nothing is kept", n)
		}
	})
	run("acknowledges what was not sent", func(t *testing.T, h *hostile) {
		c := open(h)
		h.send(appendAck(nil, ranges{{0, 1 << 30}}, 0, 256))
		c.Write([]byte("answer"))
		if len(h.sent()) == 0 {
			t.Error("nothing more is sent")
		}
	})
	run("a port that it must not reach", func(t *testing.T, h *hostile) {
		open(h)
		h.sent()
		h.send(data(theirs(1), 666, 0, []byte("x"), false))
		time.Sleep(time.Second)
		for _, p := range h.sent() {
			_, frames, _ := parseHeader(p)
			var f frame
			for len(frames) > 0 {
				frames, _ = f.parse(frames)
				if f.kind == kindAck && f.acked[0].end > 2 || f.kind == kindReset {
					t.Errorf("it was answered: %+v", f)
				}
			}
		}
	})
	run("an earlier epoch", func(t *testing.T, h *hostile) {
		c := open(h)
		h.Receive(peerAddr, [][]byte{append(header{epoch: 6, number: 99}.append(nil), data(theirs(9), 1, 0, []byte("x"), false)...)})
		if len(h.conns) != 0 || c.Over() {
			t.Error("the packet is attributed to the peer")
		}
	})
	run("a later epoch", func(t *testing.T, h *hostile) {
		c := open(h)
		h.Receive(peerAddr, [][]byte{append(header{epoch: 8, number: 1}.append(nil), kindPing)})
		broken(t, c)
		if _, err := c.Write([]byte("x")); !errors.Is(err, errAnew) {
			t.Errorf("write: %v", err)
		}
	})
	run("acknowledges at once, and only the last", func(t *testing.T, h *hostile) {
		c := open(h)
		h.send(appendWindow(nil, theirs(0), 1<<40))
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 200 {
				if _, err := c.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}()
		for range 2000 {
			synctest.Wait()
			if packets := h.sent(); len(packets) > 0 {
				last, _, _ := parseHeader(packets[len(packets)-1])
				h.send(appendAck(nil, ranges{{last.number, last.number + 1}}, 0, 256))
			}
			a := h.assoc(peerAddr)
			a.mu.Lock()
			inFlight, limit := a.cc.(*congestion).inFlight, h.opts.SendBuffer
			a.mu.Unlock()
			if inFlight < 0 || inFlight > limit {
				t.Fatalf("%d bytes in flight", inFlight)
			}
			time.Sleep(time.Millisecond)
		}
		c.Abort()
		<-done
	})
}

// FuzzReceive feeds a mux sequences of packets from a known peer.
func FuzzReceive(f *testing.F) {
	packet := func(number uint64, frames ...[]byte) []byte {
		return append(header{epoch: 7, number: number}.append(nil), bytes.Join(frames, nil)...)
	}
	join := func(packets ...[]byte) []byte {
		var all []byte
		for _, p := range packets {
			all = append(append(all, byte(len(p)>>8), byte(len(p))), p...)
		}
		return all
	}
	f.Add(join(packet(1, data(theirs(0), 1, 0, []byte("hello"), false)), packet(2, appendAck(nil, ranges{{0, 1}}, 3, 256))))
	f.Add(join(packet(1, data(theirs(0), 1, 5, []byte("world"), true)), packet(3, data(theirs(0), 1, 0, []byte("hello"), false), appendStop(nil, theirs(0)))))
	f.Add(join(packet(9, appendWindow(nil, streamID{}, 1<<20), appendReset(nil, streamID{}, 1), []byte{kindPing})))
	f.Fuzz(func(t *testing.T, all []byte) {
		h := newHostile(t)
		defer h.Close()
		c, err := h.Dial(peerAddr, 1)
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("request"))
		var accepted []*Conn
		for len(all) >= 2 {
			n := min(int(all[0])<<8|int(all[1]), len(all)-2)
			h.Receive(peerAddr, [][]byte{all[2 : 2+n]})
			all = all[2+n:]
			for _, p := range h.sent() {
				header, frames, err := parseHeader(p)
				if err != nil {
					t.Fatalf("a malformed packet is sent: %x (%+v)", p, header)
				}
				var f frame
				for len(frames) > 0 {
					if frames, err = f.parse(frames); err != nil {
						t.Fatalf("a malformed frame is sent: %x", p)
					}
				}
			}
		}
		for {
			select {
			case c := <-h.conns:
				accepted = append(accepted, c)
				continue
			default:
			}
			break
		}
		for _, c := range append(accepted, c) {
			c.SetReadDeadline(time.Unix(1, 0))
			c.Read(make([]byte, 100))
			c.Close()
		}
		if a := h.assoc(peerAddr); a.cc.(*congestion).inFlight < 0 || int64(a.granted) < 0 {
			t.Fatalf("%d bytes in flight, %d granted", a.cc.(*congestion).inFlight, a.granted)
		}
	})
}
