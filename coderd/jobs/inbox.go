package jobs

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const (
	maxInbox    = 1 << 20 // bytes; one longer message is held alone
	messageCost = 256     // bytes that a message takes besides its contents
)

// inbox holds what a daemon has sent while the server stores what it sent before, so that what arrives meanwhile is
// stored together. One goroutine calls put, and another take.
type inbox struct {
	arrived, taken notify.Wake

	mu       sync.Mutex // guards the fields below
	messages []*provisionerpb.DaemonMessage
	bytes    int
}

func newInbox() *inbox { return &inbox{arrived: notify.NewWake(), taken: notify.NewWake()} }

// put adds a message. It blocks while the inbox is full, until ctx ends.
func (b *inbox) put(ctx context.Context, m *provisionerpb.DaemonMessage) error {
	size := proto.Size(m) + messageCost
	for {
		b.mu.Lock()
		room := len(b.messages) == 0 || b.bytes+size <= maxInbox
		if room {
			b.messages, b.bytes = append(b.messages, m), b.bytes+size
		}
		b.mu.Unlock()
		if room {
			b.arrived.Poke()
			return nil
		}
		select {
		case <-b.taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take removes up to limit messages, in the order of their arrival. It does not block: arrived receives when there may
// be more.
func (b *inbox) take(limit int) (messages []*provisionerpb.DaemonMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit = min(limit, len(b.messages))
	messages, b.messages = b.messages[:limit:limit], b.messages[limit:]
	for _, m := range messages {
		b.bytes -= proto.Size(m) + messageCost
	}
	if len(b.messages) == 0 {
		b.messages = nil
	} else {
		b.arrived.Poke()
	}
	b.taken.Poke()
	return messages
}

// groups splits events into those of one lease each, in the order in which the leases first appear. The order of one
// lease's events stays. An event with a large state is alone.
func groups(events []*provisionerpb.Event) [][]*provisionerpb.Event {
	type lease struct {
		job   string
		epoch uint64
	}
	var all [][]*provisionerpb.Event
	open := map[lease]int{} // the index of the group that takes further events
	for _, e := range events {
		key := lease{string(e.GetJobId()), e.GetEpoch()}
		alone := inPieces(e) != nil || e.GetStatePiece() != nil
		if i, ok := open[key]; ok && !alone {
			all[i] = append(all[i], e)
			continue
		}
		all = append(all, []*provisionerpb.Event{e})
		if open[key] = len(all) - 1; alone {
			delete(open, key)
		}
	}
	return all
}
