package pubsub

import "context"

// Memory is a PubSub within one process.
type Memory struct{ table table }

// NewMemory returns one without subscribers. Close it after use.
func NewMemory() *Memory { return &Memory{} }

// Publish never fails.
func (m *Memory) Publish(_ context.Context, channel, payload string) error {
	m.table.deliver(channel, payload)
	return nil
}

// Subscribe implements PubSub.
func (m *Memory) Subscribe(channel string, fn func(string)) func() {
	s := newSubscriber(fn)
	m.table.add(channel, s)
	return func() { m.table.remove(channel, s) }
}

// Close ends all subscriptions and waits for calls that have begun. Not to be called by a subscriber.
func (m *Memory) Close() { m.table.close() }
