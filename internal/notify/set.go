package notify

import (
	"slices"
	"sync"
)

// Set is a Wake that also keeps what has changed, each item once. The zero T stands for everything. Create one with
// NewSet. It is safe for concurrent use.
type Set[T comparable] struct {
	Wake

	mu    sync.Mutex // guards the field below
	items map[T]struct{}
}

// NewSet returns a Set without items.
func NewSet[T comparable]() *Set[T] { return &Set[T]{Wake: NewWake(), items: map[T]struct{}{}} }

// Add adds items, and wakes the goroutine that takes them. It never blocks.
func (s *Set[T]) Add(items ...T) {
	s.mu.Lock()
	for _, item := range items {
		s.items[item] = struct{}{}
	}
	s.mu.Unlock()
	s.Poke()
}

// Take returns the items since the last call, in no order, and only the zero T if it is among them. There may be none:
// a call before has taken them.
func (s *Set[T]) Take() (items []T) {
	var everything T
	s.mu.Lock()
	defer s.mu.Unlock()
	for item := range s.items {
		items = append(items, item)
	}
	clear(s.items)
	if slices.Contains(items, everything) {
		return []T{everything}
	}
	return items
}
