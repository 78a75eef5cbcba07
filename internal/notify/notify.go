// Package notify wakes goroutines when something has changed. What changed stands elsewhere, usually under a mutex: a Wake or a
// Broadcast only tells its waiters to look again.
package notify

// Wake wakes one goroutine, which receives from it. Make one with NewWake.
//
//	for {
//		select {
//		case <-wake:
//			look()
//		case <-ctx.Done():
//			return
//		}
//	}
type Wake chan struct{}

// NewWake returns a Wake that nothing has poked yet.
func NewWake() Wake { return make(Wake, 1) }

// Poke lets one receive from w proceed. It never blocks: several pokes before that receive count as one. The receiver therefore
// receives first and looks second.
func (w Wake) Poke() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Broadcast wakes any number of goroutines. The zero value is ready. It has no lock of its own: call its methods under the lock that
// guards what changes.
type Broadcast struct {
	c chan struct{} // what waiters hold; nil when nothing has asked since the last Notify
}

// Changed returns a channel that the next Notify closes. Look at what may change under the same lock, and receive without it.
func (b *Broadcast) Changed() <-chan struct{} {
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

// Awaited reports whether anything has asked for Changed since the last Notify.
func (b *Broadcast) Awaited() bool { return b.c != nil }

// Notify wakes everything that holds a channel of Changed. It never blocks.
func (b *Broadcast) Notify() {
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
