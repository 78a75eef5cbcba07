package stream

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// firstWindow is how many bytes an opener may send before it receives a window.
	firstWindow = 64 << 10
	// leastWindow is the window of a stream, in bytes, when others have used up the peer's budget.
	leastWindow = 64 << 10
	// budgetWindows is how many full windows a peer's streams share.
	budgetWindows = 4
	// maxStreams is how many streams opened by a peer may exist at once.
	maxStreams = 1024
	// ackEvery is how many packets trigger an immediate acknowledgement. ackShare is how often that may happen in one
	// round trip.
	ackEvery = 2
	ackShare = 32
	// keepalive is how long streams may be silent before the association probes the path.
	keepalive = 5 * time.Minute
	// maxMTUTries is how often the association tries longer packets.
	maxMTUTries = 3
)

var (
	errSilent = errors.New("the peer has not answered for half an hour")
	errAnew   = fmt.Errorf("the peer has restarted: %w", syscall.ECONNRESET)
)

// assoc is one end of all streams between two nodes.
type assoc struct {
	mux   *Mux
	peer  netip.Addr
	group *group

	queued bool // in mux.ready; guarded by mux.mu

	mu    sync.Mutex // guards everything below
	err   error      // why the association is over
	epoch uint32
	other uint32 // the peer's epoch; 0 while unknown
	hello bool   // an empty packet with our epoch is due

	// Sending.
	sent       history
	largest    uint64 // one more than the largest acknowledged number
	cc         controller
	relayed    bool // packets take a path through a relay
	heard      bool // something has come back
	trips      trips
	oldTrips   trips         // of the path that packets took before
	anew       time.Duration // packets sent before then do not tell how long the path is: see measuresFrom
	lossAt     time.Duration
	lastSent   time.Duration // when the last packet that needs an acknowledgement was sent
	timeouts   int           // in a row
	silentFrom time.Duration // when the first of them happened; 0 if there were none
	probes     int           // packets to send regardless of the congestion window
	packetSize int
	mtuTries   int
	mtuProbing bool       // a long packet is in flight
	data       []*Conn    // have data to send, in the order of their turns
	drained    bool       // data was empty after the last packet
	control    []*Conn    // have other frames to send
	unknown    []streamID // over here, but the peer still sends on them: each packet is answered with a reset
	timer      *time.Timer
	timerAt    time.Duration // when it fires; 0 if it is not set

	// Receiving.
	received  ranges // packet numbers, at most maxRanges spans
	highestAt time.Duration
	unacked   int  // packets that need an acknowledgement
	ackDue    bool // immediately
	ackAt     time.Duration
	lastAck   time.Duration // when the last acknowledgement was sent

	streams  map[streamID]*Conn
	opened   uint64 // streams that this end opened
	seen     ranges // numbers of streams that the peer opened
	incoming int    // open streams that the peer opened
	granted  uint64 // bytes that the peer may send on all streams beyond those read
	held     int    // memory of what arrived on all streams, in bytes
	arriving []*Conn
}

func newAssoc(m *Mux, peer netip.Addr, g *group) *assoc {
	return &assoc{
		mux: m, peer: peer, group: g, epoch: m.nextEpoch(), streams: make(map[streamID]*Conn), packetSize: basePacket,
		cc: &congestion{limit: m.opts.SendBuffer},
	}
}

func (a *assoc) now() time.Duration { return time.Since(a.mux.start) }

// fail ends all streams. a.mu must be held.
func (a *assoc) fail(err error) {
	for _, c := range a.streams {
		c.over(err)
	}
	a.sent = history{base: a.sent.next, next: a.sent.next}
	a.cc.clear()
	a.timeouts, a.silentFrom, a.probes, a.lossAt = 0, 0, 0, 0
	a.mtuProbing = false // its answer will never arrive
}

// end is like fail, for an association that ends of its own accord.
func (a *assoc) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
	a.fail(err)
	if a.timer != nil {
		a.timer.Stop()
	}
}

// kick queues the association if it has packets to send, and sets its timer. a.mu must be held.
func (a *assoc) kick(now time.Duration) {
	if a.err != nil {
		return
	}
	if a.wants(now) {
		a.mux.enqueue(a)
	}
	a.arm(now)
}

// wants reports whether the association has a packet to send now.
func (a *assoc) wants(now time.Duration) bool {
	if a.ackDue || a.hello || a.probes > 0 || len(a.control) > 0 || len(a.unknown) > 0 {
		return true
	}
	if len(a.data) == 0 {
		return false
	}
	yes, _ := a.cc.maySend(now)
	return yes
}

// arm sets the timer to the earliest deadline.
func (a *assoc) arm(now time.Duration) {
	at := a.lossAt
	earlier := func(t time.Duration) {
		if t != 0 && (at == 0 || t < at) {
			at = t
		}
	}
	if a.probes == 0 {
		earlier(a.timeoutAt())
	}
	if !a.ackDue {
		earlier(a.ackAt)
	}
	if len(a.data) > 0 {
		if yes, when := a.cc.maySend(now); !yes && when != 0 {
			earlier(when - pacingSlack/2)
		}
	}
	if len(a.streams) > 0 && a.probes == 0 {
		earlier(max(a.lastSent, a.highestAt) + keepalive)
	}
	switch {
	case at == 0 || a.timerAt != 0 && a.timerAt <= at:
		return // a timer that fires too early sets itself again
	case a.timer == nil:
		a.timer = time.AfterFunc(at-now, a.fire)
	default:
		a.timer.Reset(at - now)
	}
	a.timerAt = at
}

func (a *assoc) fire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.timerAt = 0
	if a.err != nil {
		return
	}
	if a.ackAt != 0 && now >= a.ackAt {
		a.ackDue = true
	}
	if a.lossAt != 0 && now >= a.lossAt {
		a.detectLost(now)
	}
	if at := a.timeoutAt(); at != 0 && now >= at {
		a.probe(now)
	}
	if len(a.streams) > 0 && a.sent.base == a.sent.next && now-max(a.lastSent, a.highestAt) >= keepalive {
		a.probes = 1
	}
	a.kick(now)
}

// fill writes packets to bufs, as many as fit and may be sent now.
func (a *assoc) fill(bufs [][]byte, sizes []int, offset int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	count := 0
	if a.drained {
		a.cc.idle()
	}
	for a.err == nil && count < len(bufs) && a.wants(now) {
		b := a.mux.header(bufs[count][offset:], a.peer)
		b = a.packet(b, now)
		sizes[count] = a.mux.finish(bufs[count][offset:], b)
		count++
	}
	a.drained = len(a.data) == 0
	a.kick(now)
	return count
}

// packet appends one packet to b. The association must have something to send.
func (a *assoc) packet(b []byte, now time.Duration) []byte {
	begin := len(b)
	limit := begin + a.packetSize
	number := a.sent.next
	record := a.sent.push()
	record.at = now
	b = header{epoch: a.epoch, peer: a.other, number: number}.append(b)
	a.hello = false
	if a.unacked > 0 || a.ackDue {
		b = appendAck(b, a.received, uint64(max(now-a.highestAt, 0)/time.Microsecond), 256)
		a.unacked, a.ackDue, a.ackAt, a.lastAck = 0, false, 0, now
	}
	for len(a.unknown) > 0 && limit-len(b) >= 32 {
		b = appendReset(b, a.unknown[0], reasonAborted)
		a.unknown = a.unknown[1:]
	}
	body := len(b)
	for len(a.control) > 0 && limit-len(b) >= 64 {
		c := a.control[0]
		a.control = a.control[1:]
		b = c.appendControl(b, record)
	}
	switch may, _ := a.cc.maySend(now); {
	case !may && a.probes == 0:
	case len(b) == body && a.tryLonger():
		record.tries, a.mtuProbing = a.longer(), true
		end := begin + record.tries
		if a.relayed {
			b = a.appendAll(b, end, record)
			break
		}
		b = append(b, kindPing, kindPad)
		clear(b[len(b):end])
		b = b[:end]
	default:
		b = a.appendAll(b, limit, record)
	}
	if a.probes > 0 {
		a.probes--
		if len(b) == body {
			b = append(b, kindPing)
		}
	}
	if len(b) == body { // nothing to retransmit if the packet is lost
		record.done = true
		a.sent.trim(a.largest)
		return b
	}
	record.size = len(b) - begin
	record.sample = a.cc.sent(now, record.size)
	a.lastSent = now
	return b
}

// appendAll appends data of the streams in turn.
func (a *assoc) appendAll(b []byte, limit int, record *sentPacket) []byte {
	for len(a.data) > 0 && limit-len(b) > maxDataHeader {
		c := a.data[0]
		a.data = a.data[1:]
		b = c.appendData(b, limit, record)
		c.inData = false
		c.schedule() // at the back of the queue
	}
	return b
}

// tryLonger reports whether to send a long packet now, to find out whether such packets arrive. A relay's connections
// start slowly, so nothing but data is sent through them.
func (a *assoc) tryLonger() bool {
	return a.packetSize == basePacket && a.mtuTries < maxMTUTries && !a.mtuProbing && a.heard && a.probes == 0 &&
		len(a.data) > 0 &&
		(!a.relayed || a.data[0].ready() >= a.longer())
}

// longer returns the length of packets to try next.
func (a *assoc) longer() int {
	if a.relayed && a.mtuTries < maxMTUTries-1 {
		return max(a.mux.opts.RelayPacket, longPacket)
	}
	return longPacket
}

// receive processes packets from the peer and returns the streams that they opened.
func (a *assoc) receive(packets []parsed) []*Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil
	}
	now := a.now()
	for i := range packets {
		a.receiveOne(now, &packets[i])
	}
	switch next := a.lastAck + min(a.trips.smooth/ackShare, ackDelay); {
	case a.unacked == 0:
	case a.unacked >= ackEvery && now >= next:
		a.ackDue = true
	case a.ackAt == 0 && a.unacked >= ackEvery:
		a.ackAt = next
	case a.ackAt == 0:
		a.ackAt = now + ackDelay
	}
	a.kick(now)
	arriving := a.arriving
	a.arriving = nil
	return arriving
}

func (a *assoc) receiveOne(now time.Duration, p *parsed) {
	switch {
	case p.peer != 0 && p.peer != a.epoch:
		a.hello = true // the packet was meant for an earlier epoch of this end
		return
	case p.epoch == a.other:
	case a.other != 0 && int32(p.epoch-a.other) < 0:
		return // an earlier epoch of the peer sent it
	default:
		if a.other != 0 {
			a.fail(errAnew)
			a.received, a.seen, a.unacked = nil, nil, 0
		}
		a.other = p.epoch
	}
	if a.duplicate(p.number) {
		return
	}
	silent := a.timeouts > 0 || now-a.highestAt > maxTimeout
	a.measuresFrom(now)
	if !a.heard {
		a.heard = true
		a.cc.hear()
	}
	needsAck := false
	var f frame
	for rest := p.frames; len(rest) > 0; {
		var err error
		if rest, err = f.parse(rest); err != nil {
			return // cannot happen: Mux.Receive has parsed the whole packet
		}
		switch f.kind {
		case kindAck:
			if a.acknowledge(now, &f) != nil {
				return
			}
		case kindPad:
		case kindPing:
			needsAck = true
		default:
			needsAck = true
			a.handle(&f)
		}
	}
	if silent {
		a.back(now)
	}
	if !a.note(p.number) {
		return
	}
	if len(a.received) > 0 && a.received[len(a.received)-1].end == p.number+1 {
		a.highestAt = now
	}
	if needsAck {
		a.unacked++
		if a.received[len(a.received)-1].end != p.number+1 {
			a.ackDue = true // it fills a gap
		}
	}
}

// duplicate reports whether a packet was received before, or is too old to tell.
func (a *assoc) duplicate(number uint64) bool {
	if a.received.has(number, number+1) {
		return true
	}
	return len(a.received) == maxRanges && number < a.received[0].start
}

// note records that a packet was received.
func (a *assoc) note(number uint64) bool {
	if !a.received.add(number, number+1) {
		return false
	}
	if len(a.received) > maxRanges {
		a.received = slices.Delete(a.received, 0, len(a.received)-maxRanges)
	}
	return true
}

// handle processes a frame that concerns a stream.
func (a *assoc) handle(f *frame) {
	c := a.streams[f.id]
	if c == nil {
		if f.id.ours && (f.kind == kindData || f.kind == kindWindow) && len(a.unknown) < maxRanges {
			a.unknown = append(a.unknown, f.id) // the stream is over here, but the peer still waits for it
		}
		if f.kind != kindData || f.id.ours {
			return
		}
		if c = a.open(f); c == nil {
			return
		}
	}
	switch f.kind {
	case kindData:
		c.receive(f)
	case kindWindow:
		c.windowed(f.offset)
	case kindStop:
		c.stopped()
	case kindReset:
		c.reset(f.offset)
	}
}

// open creates a stream that the peer has opened. It returns nil if the stream existed before or exceeds maxStreams.
func (a *assoc) open(f *frame) *Conn {
	if !f.opens || !a.seen.add(f.id.number, f.id.number+1) {
		return nil
	}
	c := a.newConn(f.id, f.port)
	a.incoming++
	if len(a.seen) > maxRanges || a.incoming > maxStreams {
		c.refuse()
		return nil
	}
	a.arriving = append(a.arriving, c)
	return c
}

// free returns how many more bytes all streams of all peers may hold.
func (a *assoc) free() int { return max(a.mux.opts.MaxHeld-int(a.mux.held.Load()), 0) }

// count adds to the memory that the peer uses, and reports whether it may use that much, see Options.MaxHeld.
func (a *assoc) count(change int) bool {
	a.held += change
	a.mux.held.Add(int64(change))
	held := int(a.group.held.Add(int64(change)))
	return a.held <= leastWindow || held <= a.free()
}

// grant returns how many bytes the peer may send on a stream beyond those read. It is a small part of what its group
// may use besides what the others of the group hold, since others may use that up before the bytes arrive.
func (a *assoc) grant(had uint64) uint64 {
	window := uint64(a.mux.opts.RecvBuffer)
	group := int(a.group.held.Load()) - a.held
	budget := min(budgetWindows*window, uint64(max(a.free()-group, 0)/8))
	others := a.granted - had
	if others >= budget {
		return min(leastWindow, window)
	}
	return max(min(window, (budget-others)/2), leastWindow)
}

// moved handles a change of the path that packets to the peer take.
func (a *assoc) moved(relayed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.relayed == relayed {
		return
	}
	a.relayed = relayed
	a.oldTrips, a.trips = a.trips, trips{}
	a.cc.restart(relayed)
	for n := a.sent.base; n < a.sent.next; n++ {
		p := a.sent.at(n)
		if !p.done && !p.old {
			a.cc.forget(p.size)
		}
		p.old = true
	}
	a.packetSize, a.mtuTries, a.mtuProbing = basePacket, 0, false
	a.kick(a.now())
}
