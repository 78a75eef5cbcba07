package stream

import "time"

const (
	// basePacket is the length in bytes of packets that pass everywhere. With 40 bytes for the inner IPv6 header, 32
	// for WireGuard's, 8 for UDP's and 40 for the outer IPv6 header it makes 1280, the minimum MTU of IPv6 (RFC 8200,
	// section 5). WireGuard pads to a multiple of 16.
	basePacket = 1200 - 40
	// longPacket is the length in bytes of packets on paths that carry 1500 bytes, as most do. Each path is probed for
	// it.
	longPacket = 1408 - 40

	// ackDelay is how long an acknowledgement waits for a packet to travel with.
	ackDelay = 5 * time.Millisecond
	// granularity is the shortest time before a packet that later ones have overtaken is declared lost (RFC 9002,
	// section 6.1.2).
	granularity = time.Millisecond
	// firstTimeout is how long to wait for an answer on a path that has not answered yet.
	firstTimeout = 400 * time.Millisecond
	// maxTimeout bounds how long an end waits before it probes a silent path again, and so how long a stream stays
	// silent after the path is back.
	maxTimeout = 250 * time.Millisecond
	// slowTimeout replaces maxTimeout once a path has been silent for slowAfter.
	slowTimeout = time.Second
	slowAfter   = time.Minute
	// patience is how long streams survive on a path without answers.
	patience = 30 * time.Minute
	// maxDoubtful is how many packets an end remembers that it has declared lost without knowing that a later one
	// arrived.
	maxDoubtful = 1 << 14
	// asleep is how long a peer that is awake takes to answer at most, on the longest path.
	asleep = 2 * time.Second
	// outage is the number of consecutive timeouts after which the estimates of the path are discarded.
	outage = 3
)

// sentPacket is a packet in flight.
type sentPacket struct {
	at        time.Duration
	size      int
	done      bool // acknowledged, declared lost, or not in need of an acknowledgement
	lost      bool // declared lost; an acknowledgement may still show that the path is only longer than it seemed
	old       bool // sent on a path that packets no longer take
	tries     int  // if the packet arrives, packets of this length do; 0 for most
	sample    sample
	frame     sentFrame   // the first frame that must arrive, if any
	moreFrame []sentFrame // the others
}

// sentFrame is the content of a sent frame. kind is 0 for none.
type sentFrame struct {
	kind   byte
	fin    bool
	opens  bool
	n      int
	conn   *Conn
	offset uint64
}

func (p *sentPacket) add(f sentFrame) {
	if p.frame.kind == 0 {
		p.frame = f
		return
	}
	p.moreFrame = append(p.moreFrame, f)
}

// each calls f for every frame that must arrive.
func (p *sentPacket) each(f func(*sentFrame)) {
	if p.frame.kind == 0 {
		return
	}
	f(&p.frame)
	for i := range p.moreFrame {
		f(&p.moreFrame[i])
	}
}

// history holds the sent packets, starting at the first that is not done.
type history struct {
	ring       []sentPacket // its length is a power of two
	base, next uint64
}

func (h *history) at(number uint64) *sentPacket { return &h.ring[number&uint64(len(h.ring)-1)] }

// push adds an entry for the next packet.
func (h *history) push() *sentPacket {
	if h.next-h.base == uint64(len(h.ring)) {
		bigger := history{ring: make([]sentPacket, max(64, 2*len(h.ring))), base: h.base, next: h.next}
		for n := h.base; n < h.next; n++ {
			*bigger.at(n) = *h.at(n)
		}
		*h = bigger
	}
	p := h.at(h.next)
	*p = sentPacket{moreFrame: p.moreFrame[:0]}
	h.next++
	return p
}

// trim drops the packets at the beginning that are done. Lost ones stay until a later one, up to largest, is
// acknowledged.
func (h *history) trim(largest uint64) {
	for h.base < h.next && h.at(h.base).done {
		p := h.at(h.base)
		if p.lost && h.base >= largest && h.next-h.base <= maxDoubtful {
			return
		}
		*p = sentPacket{done: true, moreFrame: p.moreFrame[:0]}
		h.base++
	}
	if h.base == h.next && len(h.ring) > 1024 {
		h.ring = nil // free the memory of a finished bulk transfer
	}
}

// trips estimates round trips as described in RFC 9002, section 5.
type trips struct {
	latest, smooth, deviation time.Duration // 0 before the first
}

func (t *trips) sample(d time.Duration) {
	t.latest = d
	if t.smooth == 0 {
		t.smooth, t.deviation = d, d/2
		return
	}
	t.deviation += ((t.smooth - d).Abs() - t.deviation) / 4
	t.smooth += (d - t.smooth) / 8
}

// late returns how long a packet that later ones have overtaken may take before it is declared lost.
func (t *trips) late() time.Duration {
	d := max(t.latest, t.smooth)
	return d + max(d/8, granularity)
}

// timeout returns how long to wait for an answer.
func (t *trips) timeout() time.Duration {
	if t.smooth == 0 {
		return firstTimeout
	}
	return t.smooth + max(4*t.deviation, granularity) + 2*ackDelay
}

// acknowledge processes an ack.
func (a *assoc) acknowledge(now time.Duration, f *frame) error {
	h := &a.sent
	if f.spans == 0 || f.acked[0].end > h.next {
		return errMalformed
	}
	largest := f.acked[0].end - 1
	var (
		latest   *sentPacket // of the packets that f newly acknowledges
		bytes    int
		measured time.Duration
	)
	for _, s := range f.acked[:f.spans] {
		for n := min(s.end, h.next); n > max(s.start, h.base); {
			n--
			p := h.at(n)
			if p.done && !p.lost {
				continue
			}
			if n == largest && !p.old && p.at >= a.anew {
				// The other end must not wait longer than this: a larger delay would make the path seem shorter than it
				// is.
				measured = max(now-p.at-min(time.Duration(f.offset)*time.Microsecond, 2*ackDelay), time.Microsecond)
			}
			late := p.lost
			p.done, p.lost = true, false
			if !p.old && !late {
				a.cc.deliver(now, p.size)
				bytes += p.size
				if latest == nil {
					latest = p
				}
			}
			if !p.old && late {
				a.cc.found(p.size)
			}
			a.arrived(p)
		}
		if s.start <= h.base {
			break
		}
	}
	a.largest = max(a.largest, largest+1)
	if measured > 0 {
		a.trips.sample(measured)
	}
	if latest != nil {
		a.cc.update(now, latest.sample, latest.at, bytes, measured)
	}
	if bytes > 0 || measured > 0 {
		a.answered()
	}
	a.detectLost(now)
	return nil
}

// measuresFrom is called when a packet has arrived, before it is used. If the peer has answered nothing for long, it
// slept, or the path was cut. Packets that waited for it to wake are acknowledged late, and would make a short path
// seem as long as a part of the sleep: what is lost after that would be missed only seconds later.
func (a *assoc) measuresFrom(now time.Duration) {
	if h := &a.sent; h.base < h.next && now-max(a.highestAt, h.at(h.base).at) >= asleep {
		a.anew = now
	}
}

// answered records that the path carries packets.
func (a *assoc) answered() {
	if a.timeouts >= outage {
		a.cc.restart(a.relayed)
	}
	a.timeouts, a.silentFrom = 0, 0
}

// arrived records that a packet was acknowledged.
func (a *assoc) arrived(p *sentPacket) {
	if p.tries != 0 && !p.old {
		a.packetSize, a.mtuProbing = p.tries, false
	}
	p.each(func(f *sentFrame) { f.conn.arrived(f) })
}

// lost schedules the content of a lost packet for retransmission.
func (a *assoc) lost(n uint64) {
	p := a.sent.at(n)
	p.done, p.lost = true, true
	if !p.old {
		if p.tries != 0 {
			if a.nextArrived(n) {
				a.mtuTries++
			}
			a.mtuProbing = false
		}
		if p.tries != 0 { // it was too long
			a.cc.forget(p.size)
		} else {
			a.cc.lose(a.now(), p.at, p.size)
		}
	}
	p.each(func(f *sentFrame) { f.conn.lostFrame(f) })
}

// nextArrived reports whether the packet after the lost packet n has arrived, or none was sent. If it has not, both may
// have been lost in a full queue, and the loss of n does not show that the path takes no packets of its length.
func (a *assoc) nextArrived(n uint64) bool {
	for n++; n < a.sent.next; n++ {
		if p := a.sent.at(n); p.size > 0 { // others need no acknowledgement
			return p.done && !p.lost
		}
	}
	return true
}

// detectLost finds packets that later ones overtook too long ago, and determines when the next one will be lost.
func (a *assoc) detectLost(now time.Duration) {
	h := &a.sent
	a.lossAt = 0
	for n := h.base; n < a.largest && n < h.next; n++ {
		p := h.at(n)
		if p.done {
			continue
		}
		late := a.trips.late()
		if p.old {
			late = max(late, a.oldTrips.late())
		}
		if now-p.at >= late {
			a.lost(n)
		} else if a.lossAt == 0 || p.at+late < a.lossAt {
			a.lossAt = p.at + late
			if !p.old {
				break // the following packets were sent later
			}
		}
	}
	h.trim(a.largest)
}

// timeoutAt returns when the path counts as silent; 0 if nothing is in flight.
func (a *assoc) timeoutAt() time.Duration {
	if a.sent.base == a.sent.next {
		return 0
	}
	wait := a.trips.timeout() << min(a.timeouts, 6)
	longest := maxTimeout
	if a.silentFrom != 0 && a.lastSent-a.silentFrom > slowAfter {
		longest = slowTimeout
	}
	return a.lastSent + max(min(wait, longest), a.trips.timeout())
}

// back is called when a packet has arrived after silence: the path may be back. Had the peer received what was sent
// more than a round trip ago, it would have acknowledged that by now. So that was lost, and is sent again without
// waiting for another acknowledgement or a timer.
func (a *assoc) back(now time.Duration) {
	late := max(a.trips.late(), a.oldTrips.late())
	if a.trips.smooth == 0 {
		late = max(firstTimeout, late)
	}
	h := &a.sent
	resend := a.timeouts > 0
	for n := h.base; n < h.next; n++ {
		if p := h.at(n); !p.done && now-p.at >= late {
			a.lost(n)
			resend = true
		}
	}
	h.trim(a.largest)
	if resend && a.probes == 0 && now-a.lastSent > granularity {
		a.probes = 1
	}
}

// retry sends a packet if the peer has open streams and is silent.
func (a *assoc) retry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.err != nil || len(a.streams) == 0 || now-a.highestAt < maxTimeout {
		return
	}
	if a.timeouts > 0 {
		a.probe(now)
	} else {
		a.probes = 1
	}
	a.kick(now)
}

// probe resends the first packet in flight, regardless of the congestion window. It is called when nothing was
// acknowledged for too long.
func (a *assoc) probe(now time.Duration) {
	a.timeouts++
	if a.silentFrom == 0 {
		a.silentFrom = now
	}
	if now-a.silentFrom > patience {
		a.fail(errSilent)
		return
	}
	a.probes = 1
	h := &a.sent
	for n := h.base; n < h.next; n++ {
		p := h.at(n)
		if p.done || p.frame.kind == 0 && p.tries == 0 {
			continue
		}
		p.each(func(f *sentFrame) { f.conn.lostFrame(f) })
		p.frame, p.moreFrame = sentFrame{}, p.moreFrame[:0] // the new packet carries them
		break
	}
}
