package stream

import "time"

// controller decides how much an end sends to a peer, and how fast. An association has one, and calls it with its mutex
// held; a controller never blocks, and reads no clock: all times are on the association's.
type controller interface {
	// maySend reports whether another packet may be sent now. If not, when is the time it may be, or 0 if that depends
	// on an acknowledgement.
	maySend(now time.Duration) (yes bool, when time.Duration)
	// sent records that a packet of n bytes was sent. The association returns the sample with the packet's
	// acknowledgement.
	sent(now time.Duration, n int) sample
	// idle records that more could have been sent before the next packet, but there was no data.
	idle()

	// deliver records that a packet of n bytes arrived. After the last packet of an acknowledgement of n bytes, update
	// is called with the sample of its latest packet, when that was sent, and the round trip, or 0 if it was not
	// measured.
	deliver(now time.Duration, n int)
	update(now time.Duration, s sample, sentAt time.Duration, n int, trip time.Duration)
	// lose records that a packet is lost; found that one arrived that had been declared lost.
	lose(now, sentAt time.Duration, n int)
	found(n int)
	// forget records that a packet is no longer in flight, which says nothing about the path.
	forget(n int)

	// hear records that something came from the peer. restart forgets the path.
	hear()
	restart(relayed bool)

	// clear says that nothing is in flight.
	clear()
}

// sample is the state of a controller at the moment a packet was sent.
type sample struct {
	delivered   uint64
	deliveredAt time.Duration
	firstSent   time.Duration
	offered     bool // less was offered than the path might carry
}
