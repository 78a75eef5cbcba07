// Package fairqueue holds packets of several flows that share one connection, and decides which goes next. Flows take
// turns by bytes (deficit round robin: Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round Robin",
// SIGCOMM 1995), and one that sends little goes before those that send much (RFC 8290, section 4.1). Packets of one
// flow keep their order.
//
// It copies nothing, and has no lock of its own.
package fairqueue

// Turn is how many bytes a flow may send before the next has its turn.
const Turn = 16 << 10

// Queue is a queue of packets of flows that are named by K. The zero value is empty and ready for use.
//
// A flow that begins to send is fresh for one turn. A flow whose queue has emptied stays in the round, without packets,
// until its turn has come: it cannot become fresh again by sending its packets one at a time.
type Queue[K comparable] struct {
	flows map[K]*flow[K]
	fresh list[K] // have not used up their first turn; served before the others
	round list[K]
	bytes int
}

type flow[K comparable] struct {
	key     K
	packets [][]byte
	bytes   int
	left    int // bytes of this turn
	fresh   bool
	next    *flow[K]
}

// list is a queue of flows.
type list[K comparable] struct{ first, last *flow[K] }

func (l *list[K]) push(f *flow[K]) {
	f.next = nil
	if l.first == nil {
		l.first, l.last = f, f
		return
	}
	l.last.next, l.last = f, f
}

func (l *list[K]) pop() *flow[K] {
	f := l.first
	if l.first = f.next; l.first == nil {
		l.last = nil
	}
	f.next = nil
	return f
}

// Bytes returns how many bytes wait; BytesOf, how many of one flow.
func (q *Queue[K]) Bytes() int { return q.bytes }

func (q *Queue[K]) BytesOf(key K) int {
	if f := q.flows[key]; f != nil {
		return f.bytes
	}
	return 0
}

// Push adds a packet, which is not empty, to a flow.
func (q *Queue[K]) Push(key K, packet []byte) {
	f := q.flows[key]
	if f == nil {
		if q.flows == nil {
			q.flows = make(map[K]*flow[K])
		}
		f = &flow[K]{key: key, left: Turn, fresh: true}
		q.flows[key] = f
		q.fresh.push(f)
	}
	f.packets = append(f.packets, packet)
	f.bytes += len(packet)
	q.bytes += len(packet)
}

// Pop removes the packet whose turn it is. ok is false if there is none.
func (q *Queue[K]) Pop() (key K, packet []byte, ok bool) {
	for {
		from := &q.fresh
		if from.first == nil {
			from = &q.round
		}
		f := from.first
		if f == nil {
			return key, nil, false
		}
		switch {
		case len(f.packets) == 0 && !f.fresh:
			from.pop()
			delete(q.flows, f.key)
		case len(f.packets) == 0 || f.left <= 0:
			from.pop()
			f.fresh = false
			if f.left <= 0 {
				f.left += Turn
			}
			q.round.push(f)
		default:
			packet = f.take()
			f.left -= len(packet)
			q.removed(len(packet))
			return f.key, packet, true
		}
	}
}

// removed forgets all flows once nothing waits.
func (q *Queue[K]) removed(bytes int) {
	if q.bytes -= bytes; q.bytes == 0 {
		*q = Queue[K]{}
	}
}

func (f *flow[K]) take() []byte {
	packet := f.packets[0]
	f.packets[0] = nil
	if f.packets = f.packets[1:]; len(f.packets) == 0 {
		f.packets = nil
	}
	f.bytes -= len(packet)
	return packet
}

// Drop removes the oldest packet of the flow with the most bytes: what a full queue must lose, lose those who fill it.
// It returns nil if the queue is empty.
func (q *Queue[K]) Drop() []byte {
	var most *flow[K]
	for _, f := range q.flows {
		if len(f.packets) > 0 && (most == nil || f.bytes > most.bytes) {
			most = f
		}
	}
	if most == nil {
		return nil
	}
	packet := most.take()
	q.removed(len(packet))
	return packet
}

// Forget removes all packets of a flow, and returns them.
func (q *Queue[K]) Forget(key K) [][]byte {
	f := q.flows[key]
	if f == nil {
		return nil
	}
	packets, bytes := f.packets, f.bytes
	f.packets, f.bytes = nil, 0
	q.removed(bytes)
	return packets
}
