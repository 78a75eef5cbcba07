// Package pubsub notifies the parts of the server, and its replicas, of changes. Payloads are ids, never data:
// receivers read the change from the database. The package knows no feature.
package pubsub

import (
	"context"
	"sync"

	"github.com/codermesh/codermesh/v2/internal/notify"
)

// PubSub passes messages to all subscribers of a channel. Messages may be lost while the connection is down: afterwards
// every subscriber is called with the payload "", which means "look again".
type PubSub interface {
	// Publish sends a payload to the channel's subscribers on all replicas. To announce a change, prefer sending it in
	// the transaction of the change: SELECT pg_notify(channel, payload).
	Publish(ctx context.Context, channel, payload string) error

	// Subscribe calls fn for every message of a channel from now on, one at a time and in order. Subscribe first, then
	// read the state, and no change is missed. A slow subscriber loses messages and is then called once with "". cancel
	// ends the subscription without waiting; a call that has begun may still run. fn may call cancel.
	Subscribe(channel string, fn func(payload string)) (cancel func())
}

// queueLength bounds the messages that wait for one subscriber. Any more become one "look again".
const queueLength = 64

// subscriber calls one function in its own goroutine.
type subscriber struct {
	fn     func(string)
	signal notify.Wake

	mu     sync.Mutex
	queue  []string // guarded by mu
	closed bool     // guarded by mu
}

func newSubscriber(fn func(string)) *subscriber {
	return &subscriber{fn: fn, signal: notify.NewWake()}
}

// push never blocks.
func (s *subscriber) push(payload string) {
	s.mu.Lock()
	if payload == "" || len(s.queue) >= queueLength {
		s.queue = append(s.queue[:0], "") // one look covers everything that was queued
	} else if len(s.queue) != 1 || s.queue[0] != "" {
		s.queue = append(s.queue, payload)
	}
	s.mu.Unlock()
	s.signal.Poke()
}

func (s *subscriber) close() {
	s.mu.Lock()
	s.closed, s.queue = true, nil
	s.mu.Unlock()
	s.signal.Poke()
}

// run calls fn until close.
func (s *subscriber) run() {
	for range s.signal {
		for {
			s.mu.Lock()
			if s.closed {
				s.mu.Unlock()
				return
			}
			if len(s.queue) == 0 {
				s.mu.Unlock()
				break
			}
			payload := s.queue[0]
			s.queue = s.queue[1:]
			s.mu.Unlock()
			s.fn(payload)
		}
	}
}

// table holds the subscribers of all channels. The zero value is ready.
type table struct {
	mu       sync.Mutex
	channels map[string]map[*subscriber]struct{} // guarded by mu
	closed   bool                                // guarded by mu
	running  sync.WaitGroup
}

// add starts a subscriber. After close it adds nothing.
func (t *table) add(channel string, s *subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if t.channels == nil {
		t.channels = map[string]map[*subscriber]struct{}{}
	}
	if t.channels[channel] == nil {
		t.channels[channel] = map[*subscriber]struct{}{}
	}
	t.channels[channel][s] = struct{}{}
	t.running.Go(s.run)
}

// remove reports whether it was the channel's last subscriber.
func (t *table) remove(channel string, s *subscriber) (last bool) {
	s.close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.channels[channel][s]; !ok {
		return false
	}
	delete(t.channels[channel], s)
	if last = len(t.channels[channel]) == 0; last {
		delete(t.channels, channel)
	}
	return last
}

func (t *table) deliver(channel, payload string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.channels[channel] {
		s.push(payload) // does not block
	}
}

// lookAgain tells all subscribers that messages may have been lost.
func (t *table) lookAgain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, subscribers := range t.channels {
		for s := range subscribers {
			s.push("")
		}
	}
}

func (t *table) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, 0, len(t.channels))
	for name := range t.channels {
		names = append(names, name)
	}
	return names
}

// close ends all subscriptions and waits for calls that have begun.
func (t *table) close() {
	t.mu.Lock()
	t.closed = true
	for _, subscribers := range t.channels {
		for s := range subscribers {
			s.close()
		}
	}
	t.channels = nil
	t.mu.Unlock()
	t.running.Wait()
}
