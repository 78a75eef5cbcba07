package logship

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/notify"
)

const (
	maxPending      = 4096      // lines per source
	maxPendingBytes = 512 << 10 // per source
	maxBatch        = 256       // lines per call
	maxBatchBytes   = 64 << 10  // per call
	// pace is the least time between two batches; with maxBatchBytes it bounds the rate to 640 KiB/s.
	pace = 100 * time.Millisecond
	// slowPace is the same for a source that is over the server's limit: 32 KiB/s.
	slowPace = 2 * time.Second
	// overhead is what a line costs besides its text, in bytes.
	overhead = 64
)

// ErrRefused is returned by Send, wrapped, if the server will never accept lines of this source. The queue drops them.
var ErrRefused = errors.New("the server refuses this log source")

// Send stores lines of a source and returns the highest number that the server has stored for it. Without lines it only
// asks. full is set if the server keeps only the last of further lines, which the queue then sends slowly. Send must
// give up when ctx ends.
type Send func(ctx context.Context, source uuid.UUID, lines []Line) (stored uint64, full bool, err error)

// Queue holds the lines of all sources. Use New to make one; the zero value is not usable.
type Queue struct {
	wake notify.Wake // there may be something to send

	mu      sync.Mutex // guards the fields below and those of every source
	sources map[uuid.UUID]*Source
	order   []*Source
	idle    notify.Broadcast // nothing is pending
}

// Source is one source of lines.
type Source struct {
	queue *Queue
	id    uuid.UUID

	// Guarded by queue.mu.
	numbered bool   // next is known
	next     uint64 // the number of the first pending line
	pending  []Line
	inFlight int // how many of the first pending lines have been sent and not acknowledged
	bytes    int
	dropped  int       // lines before pending[gap]
	gap      int       // means nothing while dropped is 0
	refused  bool      // the server accepts none
	slow     bool      // only the last lines are kept
	rested   time.Time // when a slow source may send again
}

// New returns an empty queue.
func New() *Queue {
	return &Queue{wake: notify.NewWake(), sources: make(map[uuid.UUID]*Source)}
}

// Source returns the source with this id, and adds it if it is new.
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

// Add queues one line. If too many wait it drops lines in the middle, because the first and last lines matter most. It
// does not block.
func (s *Source) Add(level Level, output string) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.refused {
		return
	}
	if len(s.pending) >= maxPending || s.bytes+len(output)+overhead > maxPendingBytes {
		s.drop()
	}
	s.pending = append(s.pending, Line{At: time.Now(), Level: level, Output: output})
	s.bytes += len(output) + overhead
	q.wake.Poke()
}

// drop makes room. It drops a quarter of the lines at once, so that it is rarely needed, after the existing gap or else
// in the middle. Called with mu held.
func (s *Source) drop() {
	if s.dropped == 0 {
		s.gap = s.inFlight + (len(s.pending)-s.inFlight)/2
	}
	n := (len(s.pending) - s.gap + 3) / 4
	for _, l := range s.pending[s.gap : s.gap+n] {
		s.bytes -= len(l.Output) + overhead
	}
	s.pending = slices.Delete(s.pending, s.gap, s.gap+n)
	s.dropped += n
}

// reportDropped inserts a line with the number of dropped lines in their place. Called with mu held while nothing is in
// flight.
func (s *Source) reportDropped() {
	if s.dropped == 0 || s.gap > 0 {
		return
	}
	text := fmt.Sprintf("[%d lines were dropped: they came faster than they could be sent]", s.dropped)
	s.pending = slices.Insert(s.pending, 0, Line{At: time.Now(), Level: Warn, Output: text})
	s.bytes += len(text) + overhead
	s.dropped = 0
}

// Run sends lines until ctx ends or send fails, and returns the error. Lines without an acknowledgement stay for the
// next Run. Only one Run may be active at a time.
func (q *Queue) Run(ctx context.Context, send Send) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		source, rest := q.first()
		if source == nil {
			var rested <-chan time.Time
			if rest > 0 {
				rested = time.After(rest)
			}
			select {
			case <-q.wake:
				continue
			case <-rested:
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

// first returns the source whose turn it is, or nil if nothing may be sent now; rest is then how long the next source
// must wait, 0 if no line waits. Sources take turns. Flush ignores the slow pace.
func (q *Queue) first() (source *Source, rest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, s := range q.order {
		if len(s.pending) == 0 && s.dropped == 0 {
			continue
		}
		if left := time.Until(s.rested); s.slow && left > 0 && !q.idle.Awaited() {
			if rest == 0 || left < rest {
				rest = left
			}
			continue
		}
		q.order = append(append(q.order[:i:i], q.order[i+1:]...), s)
		return s, 0
	}
	if rest == 0 {
		q.idle.Notify()
	}
	return nil, rest
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
		s.numbered, s.next, s.slow = true, stored+1, full
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
	s.acknowledge(len(batch))
	s.slow = full
	if full {
		s.rested = time.Now().Add(slowPace)
	}
	return nil
}

// batch numbers and copies the first lines that fit into one call. It repeats an unanswered batch unchanged. Called
// with mu held.
func (s *Source) batch() []Line {
	if s.inFlight > 0 {
		return slices.Clone(s.pending[:s.inFlight])
	}
	s.reportDropped()
	n, size := 0, 0
	end := len(s.pending)
	if s.dropped > 0 {
		end = s.gap // reportDropped comes next
	}
	for n < end && n < maxBatch && (n == 0 || size+len(s.pending[n].Output) <= maxBatchBytes) {
		s.pending[n].Seq = s.next + uint64(n)
		size += len(s.pending[n].Output) + overhead
		n++
	}
	s.inFlight = n
	return slices.Clone(s.pending[:n])
}

// acknowledge forgets the first n lines. Called with mu held.
func (s *Source) acknowledge(n int) {
	for i := range n {
		s.bytes -= len(s.pending[i].Output) + overhead
	}
	s.next += uint64(n)
	s.inFlight = 0
	s.gap = max(s.gap-n, 0)
	s.pending = append(s.pending[:0:0], s.pending[n:]...)
}

func (q *Queue) refuse(s *Source) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.refused = true
	s.pending, s.inFlight, s.bytes, s.dropped = nil, 0, 0, 0
}

// Flush blocks until no line waits or ctx ends. Another goroutine must be in Run.
func (q *Queue) Flush(ctx context.Context) error {
	q.mu.Lock()
	idle := q.idle.Changed()
	q.wake.Poke()
	q.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush logs: %w", ctx.Err())
	}
}
