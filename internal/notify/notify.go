// Package notify wakes goroutines when shared state has changed. The state itself is kept elsewhere, usually under a
// mutex: a Wake or a Broadcast only makes its waiters look again. A Set also says what to look at.
package notify

// Wake wakes one goroutine, which receives from it. Create one with NewWake.
type Wake chan struct{}

// NewWake returns a Wake that has not been poked.
func NewWake() Wake { return make(Wake, 1) }

// Poke lets one receive from w proceed. It never blocks: several pokes before that receive count as one. The receiver
// must therefore receive first and look second.
func (w Wake) Poke() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Broadcast wakes any number of goroutines. The zero value is ready to use. It has no lock of its own: call its methods
// under the lock that guards the state.
type Broadcast struct {
	c chan struct{} // closed by Notify; nil unless Changed has been called since the last Notify
}

// Changed returns a channel that the next Notify closes. Read the state under the same lock, release it, and receive.
func (b *Broadcast) Changed() <-chan struct{} {
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

// Awaited reports whether Changed was called since the last Notify.
func (b *Broadcast) Awaited() bool { return b.c != nil }

// Notify closes the channel that Changed returned, which wakes all waiters. It never blocks.
func (b *Broadcast) Notify() {
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
