package peering

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Probe asks the other server whether the process of an agent with a key answers. It blocks until the answer, and
// returns false if ctx or the link ends first. The error is the fault Unavailable if too many probes are in progress.
func (l *Link) Probe(ctx context.Context, id uuid.UUID, key tailnet.PublicKey) (bool, error) {
	l.mu.Lock()
	if len(l.asked) >= protocol.MaxProbes {
		l.mu.Unlock()
		return false, fault.New(fault.Unavailable, "too many agents are connecting again")
	}
	l.probes++
	n, answer := l.probes, make(chan bool, 1)
	l.asked[n] = answer
	l.out.probes.put(n, protocol.LinkProbe{N: n, ID: id, Key: key})
	l.mu.Unlock()
	l.wake.Poke()
	select {
	case alive := <-answer:
		return alive, nil
	case <-ctx.Done():
	case <-l.ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, n)
	return false, nil
}

// answered hands the answer of a probe to who asked.
func (l *Link) answered(m protocol.LinkProbed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.asked[m.N]; c != nil {
		delete(l.asked, m.N)
		c <- m.Answers // its capacity is 1
	}
}

// answer answers a probe of the other server on own.
func (l *Link) answer(t Table, m protocol.LinkProbe, own *sync.WaitGroup) error {
	l.mu.Lock()
	l.probing++
	full := l.probing > 2*protocol.MaxProbes
	l.mu.Unlock()
	if full {
		return fmt.Errorf("more than %d probes at once", 2*protocol.MaxProbes)
	}
	answers := t.Process(m.ID, m.Key)
	own.Go(func() {
		alive := answers(l.ctx)
		l.mu.Lock()
		l.probing--
		l.out.probed.put(m.N, alive)
		l.mu.Unlock()
		l.wake.Poke()
	})
	return nil
}

const (
	// MeasureEvery is the time between two measurements of a link, after the first few. So each server hears the other
	// one at least this often.
	MeasureEvery = 3 * time.Second
	firstRounds  = 3
)

// Info describes a link, for lists.
type Info struct {
	Server uuid.UUID
	Since  time.Time
	// RTT is the latest round trip, measured every MeasureEvery; 0 while unknown.
	RTT            time.Duration
	Sent, Received uint64 // messages, without the hellos
}

// Info returns the link's figures.
func (l *Link) Info() Info {
	return Info{
		Server: l.server, Since: l.since, RTT: time.Duration(l.latest.Load()), Sent: l.sent.Load(),
		Received: l.received.Load(),
	}
}

// Heard returns when the other server last sent something, a ping or the answer to one included, also after the link
// has ended.
func (l *Link) Heard() time.Time { return protocol.LastSeen(l.conn) }

// RTT returns the shortest round trip so far, 0 while unknown.
func (l *Link) RTT() time.Duration { return time.Duration(l.shortest.Load()) }

// measure measures the round trip to the other server until the link ends.
func (l *Link) measure() {
	conn, ok := l.conn.(interface{ Ping(context.Context) error })
	if !ok {
		return
	}
	ticker := time.NewTicker(MeasureEvery)
	defer ticker.Stop()
	for i := 1; l.ctx.Err() == nil; i++ {
		begin := time.Now()
		if conn.Ping(l.ctx) != nil {
			return // the reader returns the reason
		}
		rtt := int64(time.Since(begin))
		l.latest.Store(rtt)
		if shortest := l.shortest.Load(); shortest == 0 || rtt < shortest {
			l.shortest.Store(rtt)
		}
		if i < firstRounds {
			continue
		}
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
		}
	}
}
