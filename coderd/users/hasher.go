package users

import (
	"context"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// maxWaiting bounds the password checks that wait for a turn; maxWaitingPair bounds those of one asker.
	maxWaiting     = 128
	maxWaitingPair = 16
)

// hasher grants turns to compute password hashes, each of which takes 19 MiB and tens of milliseconds. Askers
// alternate, so one that sends many requests waits for its own. When too many requests wait, the address with the most
// of them gives way.
type hasher struct {
	turns int

	mu      sync.Mutex
	free    int                // guarded by mu: turns that are not taken
	lanes   []*lane            // guarded by mu: in the order of their turns; none is empty
	waiting map[*turn]struct{} // guarded by mu: the turns in lanes
}

// lane is one asker's queue.
type lane struct {
	asker pair
	turns []*turn
}

// turn is a waiting request. Its channel receives one value: whether the request may proceed.
type turn struct{ granted chan bool }

func newHasher() *hasher {
	turns := max(1, runtime.GOMAXPROCS(0)/2)
	return &hasher{turns: turns, free: turns, waiting: map[*turn]struct{}{}}
}

// enter waits for a turn until ctx ends. The caller ends the turn by calling release. enter returns the fault
// Unavailable when too many requests wait.
func (h *hasher) enter(ctx context.Context, asker pair) (release func(), err error) {
	t, err := h.queue(asker)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return h.release, nil
	}
	select {
	case granted := <-t.granted:
		if !granted {
			return nil, tooMany()
		}
		return h.release, nil
	case <-ctx.Done():
		if h.leave(t) {
			return nil, ctx.Err()
		}
		if <-t.granted { // granted at the same time
			h.release()
		}
		return nil, ctx.Err()
	}
}

func tooMany() error {
	return fault.New(fault.Unavailable, "Too many users are signing in.").WithDetail("Try again in a few seconds.")
}

// queue takes a free turn, and returns nil, or takes a place in the asker's lane.
func (h *hasher) queue(asker pair) (*turn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.free > 0 {
		h.free--
		return nil, nil
	}
	i := slices.IndexFunc(h.lanes, func(l *lane) bool { return l.asker == asker })
	if i >= 0 && len(h.lanes[i].turns) >= maxWaitingPair {
		return nil, tooMany()
	}
	if len(h.waiting) >= maxWaiting && !h.giveWayLocked(asker.from) {
		return nil, tooMany()
	}
	if i = slices.IndexFunc(h.lanes, func(l *lane) bool { return l.asker == asker }); i < 0 {
		i = len(h.lanes)
		h.lanes = append(h.lanes, &lane{asker: asker})
	}
	t := &turn{granted: make(chan bool, 1)}
	h.lanes[i].turns = append(h.lanes[i].turns, t)
	h.waiting[t] = struct{}{}
	return t, nil
}

// giveWayLocked refuses the last waiting turn of the address with the most, unless that is the given address.
func (h *hasher) giveWayLocked(from netip.Prefix) bool {
	counts := map[netip.Prefix]int{}
	for _, l := range h.lanes {
		counts[l.asker.from] += len(l.turns)
	}
	last := -1
	for i, l := range h.lanes {
		if last < 0 || counts[l.asker.from] >= counts[h.lanes[last].asker.from] {
			last = i
		}
	}
	if last < 0 || counts[h.lanes[last].asker.from] <= counts[from]+1 {
		return false
	}
	turns := h.lanes[last].turns
	t := turns[len(turns)-1]
	h.removeLocked(t)
	t.granted <- false
	return true
}

func (h *hasher) removeLocked(t *turn) bool {
	if _, ok := h.waiting[t]; !ok {
		return false
	}
	delete(h.waiting, t)
	for i, l := range h.lanes {
		if at := slices.Index(l.turns, t); at >= 0 {
			if l.turns = slices.Delete(l.turns, at, at+1); len(l.turns) == 0 {
				h.lanes = slices.Delete(h.lanes, i, i+1)
			}
			break
		}
	}
	return true
}

// leave removes a turn from its lane. It reports false if the turn was already granted or refused.
func (h *hasher) leave(t *turn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.removeLocked(t)
}

// release passes the turn to the first lane, which moves to the end of the line.
func (h *hasher) release() {
	if h.pass() {
		debug.FreeOSMemory() // sign-ins are rare, so return their memory to the system
	}
}

// pass hands the turn on, and reports whether all turns are free now.
func (h *hasher) pass() (idle bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.lanes) == 0 {
		h.free++
		return h.free == h.turns
	}
	first := h.lanes[0]
	t := first.turns[0]
	h.removeLocked(t)
	if len(first.turns) > 0 {
		h.lanes = append(h.lanes[1:], first)
	}
	t.granted <- true // buffered, so it does not block
	return false
}
