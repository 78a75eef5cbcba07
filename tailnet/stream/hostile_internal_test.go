package stream

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

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

// open opens the first stream as the peer, and returns this end's connection.
func (h *hostile) open() *Conn {
	h.send(data(theirs(0), 1, 0, []byte("hi"), false))
	return <-h.conns
}

// hog fills a number of streams of a peer up to their least window, except the first byte of each, which never comes: all the rest must be kept.
func (h *hostile) hog(peer netip.Addr, streams uint64) {
	for id := range streams {
		for offset := uint64(1); offset < leastWindow; offset += 1000 {
			h.sendFrom(peer, data(theirs(id), 1, offset, make([]byte, min(1000, leastWindow-offset)), false))
		}
	}
}

// closeAll closes the connections that were accepted and not taken from conns.
func (h *hostile) closeAll() {
	for len(h.conns) > 0 {
		(<-h.conns).Close()
	}
}

// crowdPeer returns the address of the ith of many peers, which are not peerAddr.
func crowdPeer(i int) netip.Addr { return netip.AddrFrom16([16]byte{0: 0xfd, 14: 1, 15: byte(i)}) }

// wantBroken reads what has arrived, and expects an error behind it.
func wantBroken(t *testing.T, c *Conn) {
	t.Helper()
	io.CopyN(io.Discard, c, int64(c.Buffered()))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the stream continues")
	}
}

// TestHostilePeer checks what a peer that violates the protocol can make this end do and store.
func TestHostilePeer(t *testing.T) {
	for _, attack := range []struct {
		name string
		try  func(t *testing.T, h *hostile)
	}{
		{"beyond the window", peerExceedsWindow},
		{"an end before what came", peerEndsTwice},
		{"bytes after the end", peerSendsAfterEnd},
		{"crumbs", peerSendsCrumbs},
		{"too many streams", peerOpensTooMany},
		{"numbers far apart", peerScattersNumbers},
		{"memory", peerFillsMemory},
		{"memory of many peers", peersFillMemory},
		{"memory of a group", groupFillsMemory},
		{"a group's window", groupShrinksWindow},
		{"memory of refused streams", peerFillsRefused},
		{"acknowledges what was not sent", peerAcknowledgesUnsent},
		{"a port that it must not reach", peerTriesPort},
		{"an earlier epoch", peerRepeatsEpoch},
		{"a later epoch", peerBeginsAnew},
		{"acknowledges at once, and only the last", peerSkipsAcks},
	} {
		t.Run(attack.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHostile(t)
				defer h.Close()
				attack.try(t, h)
			})
		})
	}
}

// peerExceedsWindow sends beyond the window that it was granted.
func peerExceedsWindow(t *testing.T, h *hostile) {
	c := h.open()
	h.send(data(theirs(0), 1, 1<<30, []byte("x"), false))
	wantBroken(t, c)
}

// peerEndsTwice ends a stream before what it has already sent.
func peerEndsTwice(t *testing.T, h *hostile) {
	c := h.open()
	h.send(data(theirs(0), 1, 0, nil, true))
	if _, err := io.ReadAll(c); err == nil {
		t.Error("a stream with two ends is accepted")
	}
}

// peerSendsAfterEnd sends bytes behind the end of a stream.
func peerSendsAfterEnd(t *testing.T, h *hostile) {
	c := h.open()
	h.send(data(theirs(0), 1, 2, nil, true))
	h.send(data(theirs(0), 1, 2, []byte("more"), false))
	wantBroken(t, c)
}

// peerSendsCrumbs sends every other byte of a stream, so that each is a span of its own.
func peerSendsCrumbs(t *testing.T, h *hostile) {
	c := h.open()
	for i := range uint64(60_000) {
		h.send(data(theirs(0), 1, 4+2*i, []byte("x"), false))
	}
	wantBroken(t, c)
}

// peerOpensTooMany opens more streams than one peer may have.
func peerOpensTooMany(t *testing.T, h *hostile) {
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
}

// peerScattersNumbers opens streams whose numbers leave gaps, which this end has to remember.
func peerScattersNumbers(t *testing.T, h *hostile) {
	for i := range uint64(1000) {
		h.send(data(theirs(i*1000), 1, 0, nil, false))
	}
	if n := len(h.assoc(peerAddr).seen); n > maxRanges+1000 {
		t.Errorf("%d spans of streams are remembered", n)
	}
}

// peerFillsMemory fills the windows of many streams.
func peerFillsMemory(t *testing.T, h *hostile) {
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
}

// peersFillMemory plays many peers that fill the memory of all.
func peersFillMemory(t *testing.T, h *hostile) {
	const peers = 50
	limit := 8 << 20
	h.opts.MaxHeld = limit
	for i := range peers {
		h.Add(crowdPeer(i), Group{})
		h.hog(crowdPeer(i), 20)
	}
	synctest.Wait()
	held := 0
	for i := range peers {
		for _, c := range h.assoc(crowdPeer(i)).streams {
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
	h.closeAll()
	c := h.open()
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
}

// groupFillsMemory plays a group of peers that fills its share, beside a group of one.
func groupFillsMemory(t *testing.T, h *hostile) {
	const peers = 50
	limit := 32 << 20
	h.opts.MaxHeld = limit
	const user, other = 1, 2
	for i := range peers {
		h.Add(crowdPeer(i), Group{user})
		h.hog(crowdPeer(i), 20)
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
	h.Add(crowdPeer(peers), Group{other})
	h.hog(crowdPeer(peers), 160)
	synctest.Wait()
	if got, least := int(h.held.Load())-held, (limit-held)*2/5; got < least {
		t.Errorf("the peer of another group holds %d bytes; want at least %d", got, least)
	}
	h.closeAll()
	for i := range peers + 1 {
		h.Remove(crowdPeer(i))
	}
	if n := len(h.groups); n != 0 {
		t.Errorf("%d groups are known after their peers are gone", n)
	}
}

// groupShrinksWindow compares the windows of two groups while one of them holds half of the memory.
func groupShrinksWindow(t *testing.T, h *hostile) {
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
}

// peerFillsRefused sends to streams that this end refuses.
func peerFillsRefused(t *testing.T, h *hostile) {
	h.opts.Accept = func(netip.Addr, uint16, *Conn) func() { return nil }
	for id := range uint64(100) {
		h.send(data(theirs(id), 1, 0, make([]byte, 1000), false))
	}
	if n := h.held.Load(); n != 0 {
		t.Errorf("%d bytes are counted when nothing is kept", n)
	}
}

// peerAcknowledgesUnsent acknowledges packets that were never sent.
func peerAcknowledgesUnsent(t *testing.T, h *hostile) {
	c := h.open()
	h.send(appendAck(nil, ranges{{0, 1 << 30}}, 0, 256))
	c.Write([]byte("answer"))
	if len(h.sent()) == 0 {
		t.Error("nothing more is sent")
	}
}

// peerTriesPort opens a stream to a port that is closed to it.
func peerTriesPort(t *testing.T, h *hostile) {
	h.open()
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
}

// peerRepeatsEpoch sends a packet of an earlier epoch.
func peerRepeatsEpoch(t *testing.T, h *hostile) {
	c := h.open()
	h.Receive(peerAddr, [][]byte{append(header{epoch: 6, number: 99}.append(nil), data(theirs(9), 1, 0, []byte("x"), false)...)})
	if len(h.conns) != 0 || c.Over() {
		t.Error("the packet is attributed to the peer")
	}
}

// peerBeginsAnew begins a later epoch, as after a restart.
func peerBeginsAnew(t *testing.T, h *hostile) {
	c := h.open()
	h.Receive(peerAddr, [][]byte{append(header{epoch: 8, number: 1}.append(nil), kindPing)})
	wantBroken(t, c)
	if _, err := c.Write([]byte("x")); !errors.Is(err, errAnew) {
		t.Errorf("write: %v", err)
	}
}

// peerSkipsAcks acknowledges at once, and only the last packet of each flight.
func peerSkipsAcks(t *testing.T, h *hostile) {
	c := h.open()
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
