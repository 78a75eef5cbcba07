package coordinator

import (
	"container/heap"
	"time"

	"github.com/google/uuid"
)

// timer is a deferred call with Server.mu held. It may return a binding, which is released without the lock.
type timer struct {
	at   time.Time
	fire func() *binding
}

// timers is a heap, the next one first.
type timers []timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timers) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timers) Push(x any)        { *h = append(*h, x.(timer)) }
func (h *timers) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = timer{}
	*h = (*h)[:last]
	return x
}

// after schedules fire. Called with mu held.
func (s *Server) after(at time.Time, fire func() *binding) {
	heap.Push(&s.timers, timer{at, fire})
	if s.timers[0].at.Equal(at) {
		s.wakeTimers.Poke()
	}
}

// runTimers fires timers until the server is closed.
func (s *Server) runTimers() {
	clock := time.NewTimer(time.Hour)
	defer clock.Stop()
	for {
		var freed []*binding
		wait := time.Hour
		s.mu.Lock()
		for len(s.timers) > 0 {
			if wait = time.Until(s.timers[0].at); wait > 0 {
				break
			}
			if b := heap.Pop(&s.timers).(timer).fire(); b != nil {
				freed = append(freed, b)
			}
		}
		if len(s.timers) == 0 {
			wait = time.Hour
		}
		s.mu.Unlock()
		for _, b := range freed {
			s.release(b)
		}
		if len(freed) > 0 {
			continue // that may have taken time
		}
		clock.Reset(wait)
		select {
		case <-clock.C:
		case <-s.wakeTimers:
		case <-s.ctx.Done():
			return
		}
	}
}

// events are the changes that OnPeer has not received yet, at most one per participant.
type events struct {
	latest map[uuid.UUID]event
	order  []uuid.UUID
}

type event struct {
	principal Principal
	online    bool
}

// event queues a change for OnPeer. Called with mu held.
func (s *Server) event(p Principal, online bool) {
	if s.opts.OnPeer == nil || s.closed {
		return // the end of this server does not change its participants
	}
	if s.events.latest == nil {
		s.events.latest = make(map[uuid.UUID]event)
	}
	if _, ok := s.events.latest[p.ID]; !ok {
		s.events.order = append(s.events.order, p.ID)
	}
	s.events.latest[p.ID] = event{p, online}
	s.wakeEvents.Poke()
}

// runEvents calls OnPeer until the server is closed.
func (s *Server) runEvents() {
	for {
		s.mu.Lock()
		pending := s.events
		s.events = events{}
		s.mu.Unlock()
		for _, id := range pending.order {
			e := pending.latest[id]
			s.opts.OnPeer(e.principal, e.online)
		}
		if len(pending.order) > 0 {
			continue
		}
		select {
		case <-s.wakeEvents:
		case <-s.ctx.Done():
			return
		}
	}
}
