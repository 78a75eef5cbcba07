package peering

import (
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// batch is how many notes of a kind are taken at once.
const batch = 128

// outbox holds what the other server must learn about.
type outbox struct {
	changed  queue[uuid.UUID, struct{}]
	departed queue[uuid.UUID, struct{}]         // gone before this link began
	pairs    queue[protocol.LinkPair, struct{}] // subscriptions that have begun or ended
	ready    queue[protocol.LinkPair, tailnet.PublicKey]
	punches  queue[protocol.LinkPair, protocol.LinkPunch]
	probes   queue[uint64, protocol.LinkProbe]
	probed   queue[uint64, bool]
	synced   bool // the first notes were sent
}

// answers appends to out the probes and their answers.
func (o *outbox) answers(out []protocol.LinkMessage) []protocol.LinkMessage {
	o.probes.take(batch, func(_ uint64, m protocol.LinkProbe) { out = append(out, protocol.LinkMessage{Probe: &m}) })
	o.probed.take(batch, func(n uint64, answers bool) {
		out = append(out, protocol.LinkMessage{Probed: &protocol.LinkProbed{N: n, Answers: answers}})
	})
	return out
}

// last appends to out what follows everything else.
func (o *outbox) last(out []protocol.LinkMessage) []protocol.LinkMessage {
	o.ready.take(batch, func(pair protocol.LinkPair, k tailnet.PublicKey) {
		out = append(out, protocol.LinkMessage{Ready: &protocol.LinkReady{LinkPair: pair, Key: k}})
	})
	o.punches.take(batch, func(_ protocol.LinkPair, m protocol.LinkPunch) {
		out = append(out, protocol.LinkMessage{
			Punch: &m,
		})
	})
	if len(out) == 0 && !o.synced {
		o.synced = true
		out = append(out, protocol.LinkMessage{Synced: &protocol.Synced{}})
	}
	return out
}

// queue holds what is to be sent about keys, oldest first, at most once each.
type queue[K comparable, V any] struct {
	set   map[K]V
	order []K
}

func (q *queue[K, V]) put(k K, v V) {
	if q.set == nil {
		q.set = make(map[K]V)
	}
	if _, ok := q.set[k]; !ok {
		q.order = append(q.order, k)
	}
	q.set[k] = v
}

// take removes up to n entries and passes them to use.
func (q *queue[K, V]) take(n int, use func(K, V)) {
	for _, k := range q.order[:min(n, len(q.order))] {
		v := q.set[k]
		delete(q.set, k)
		use(k, v)
	}
	q.advance(n)
}

// keys removes up to n entries and returns their keys.
func (q *queue[K, V]) keys(n int) []K {
	keys := q.order[:min(n, len(q.order))]
	for _, k := range keys {
		delete(q.set, k)
	}
	q.advance(n)
	return keys
}

func (q *queue[K, V]) advance(n int) {
	if q.order = q.order[min(n, len(q.order)):]; len(q.order) == 0 {
		q.order = nil
	}
}
