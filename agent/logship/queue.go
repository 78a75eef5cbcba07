package logship

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	maxPending      = 4096      // lines per source
	maxPendingBytes = 512 << 10 // per source
	maxBatch        = 256       // lines per call
	maxBatchBytes   = 64 << 10  // per call
	// pace is the least time between two batches; with maxBatchBytes it bounds the rate to 640 KiB/s.
	pace = 100 * time.Millisecond
	// overhead is what a line costs beside its text.
	overhead = 64
)

// ErrRefused is what Send returns, wrapped, when the server will never take lines of this source. They are dropped.
var ErrRefused = errors.New("the server refuses this log source")

// Send stores lines of a source and returns the highest number that the server has of it. Without lines it only asks. full
// says that the server takes no more. It must give up when ctx ends.
type Send func(ctx context.Context, source uuid.UUID, lines []Line) (stored uint64, full bool, err error)

// Queue holds the lines of all sources. The zero value is not usable: New.
type Queue struct {
	wake chan struct{} // holds one token when there may be something to send

	mu      sync.Mutex // guards the fields below and those of every source
	sources map[uuid.UUID]*Source
	order   []*Source
	full    bool          // the server takes no more: everything is dropped
	idle    chan struct{} // closed when nothing is pending; nil while nobody waits
}

// Source is one source of lines.
type Source struct {
	queue *Queue
	id    uuid.UUID

	// Guarded by queue.mu.
	numbered bool   // next is known
	next     uint64 // the number of the first pending line
	pending  []Line
	bytes    int
	dropped  int
	refused  bool // the server takes none
}

// New returns an empty queue.
func New() *Queue {
	return &Queue{wake: make(chan struct{}, 1), sources: make(map[uuid.UUID]*Source)}
}

// Source is the source with this id, made if it is new.
func (q *Queue) Source(id uuid.UUID) *Source {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, ok := q.sources[id]
	if !ok {
		s = &Source{queue: q, id: id}
		q.sources[id] = s
		q.order = append(q.order, s)
	}
	return s
}

// Add queues one line, or drops it if too much waits. It does not block.
func (s *Source) Add(level Level, output string) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.full || s.refused:
		return
	case len(s.pending) >= maxPending || s.bytes+len(output)+overhead > maxPendingBytes:
		s.dropped++
		return
	}
	s.reportDropped()
	s.push(level, output)
	q.signal()
}

// push appends a line. Called with mu held.
func (s *Source) push(level Level, output string) {
	s.pending = append(s.pending, Line{At: time.Now(), Level: level, Output: output})
	s.bytes += len(output) + overhead
}

// reportDropped says how many lines are missing, where they are. Called with mu held.
func (s *Source) reportDropped() {
	if s.dropped > 0 {
		s.push(Warn, fmt.Sprintf("[%d lines were dropped: they came faster than they could be sent]", s.dropped))
		s.dropped = 0
	}
}

// signal wakes Run. Called with mu held.
func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Run sends lines until ctx ends or send fails, and returns the error. What was not acknowledged stays for the next Run. Only
// one Run at a time.
func (q *Queue) Run(ctx context.Context, send Send) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		source := q.first()
		if source == nil {
			select {
			case <-q.wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := q.sendBatch(ctx, source, send)
		if err != nil && !errors.Is(err, ErrRefused) {
			return fmt.Errorf("send logs: %w", err)
		}
		if err != nil {
			q.refuse(source)
		}
		pause.Reset(pace)
	}
}

// first is the source whose turn it is, nil when nothing waits. Sources take turns.
func (q *Queue) first() *Source {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, s := range q.order {
		if len(s.pending) > 0 || s.dropped > 0 {
			q.order = append(append(q.order[:i:i], q.order[i+1:]...), s)
			return s
		}
	}
	if q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	return nil
}

func (q *Queue) sendBatch(ctx context.Context, s *Source, send Send) error {
	q.mu.Lock()
	numbered := s.numbered
	q.mu.Unlock()
	if !numbered {
		stored, full, err := send(ctx, s.id, nil)
		if err != nil {
			return err
		}
		q.mu.Lock()
		s.numbered, s.next = true, stored+1
		q.setFull(full)
		q.mu.Unlock()
	}

	q.mu.Lock()
	batch := s.batch()
	q.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	_, full, err := send(ctx, s.id, batch)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.full {
		s.acknowledge(len(batch))
	}
	q.setFull(full)
	return nil
}

// batch numbers and copies the first lines that fit into one call. Called with mu held.
func (s *Source) batch() []Line {
	if len(s.pending) == 0 {
		s.reportDropped()
	}
	n, size := 0, 0
	for n < len(s.pending) && n < maxBatch && (n == 0 || size+len(s.pending[n].Output) <= maxBatchBytes) {
		s.pending[n].Seq = s.next + uint64(n)
		size += len(s.pending[n].Output) + overhead
		n++
	}
	return append([]Line(nil), s.pending[:n]...)
}

// acknowledge forgets the first n lines. Called with mu held.
func (s *Source) acknowledge(n int) {
	for i := range n {
		s.bytes -= len(s.pending[i].Output) + overhead
	}
	s.next += uint64(n)
	s.pending = append(s.pending[:0:0], s.pending[n:]...)
}

// setFull drops everything once the server takes no more. Called with mu held.
func (q *Queue) setFull(full bool) {
	if !full || q.full {
		return
	}
	q.full = true
	for _, s := range q.order {
		s.pending, s.bytes, s.dropped = nil, 0, 0
	}
}

func (q *Queue) refuse(s *Source) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.refused = true
	s.pending, s.bytes, s.dropped = nil, 0, 0
}

// Flush blocks until nothing waits or ctx ends. Somebody else must be in Run.
func (q *Queue) Flush(ctx context.Context) error {
	q.mu.Lock()
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.signal()
	q.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush logs: %w", ctx.Err())
	}
}
