package stripe

import (
	"testing"
	"time"
)

// over sends for a while as much as it may over a path of a given length and rate, on which what is too much waits. It returns how
// long the last chunks took.
func (p *pace) over(now *time.Time, length time.Duration, perSecond int, lasting time.Duration) time.Duration {
	var took time.Duration
	for end := now.Add(lasting); now.Before(end); {
		onTheWay := p.allowed()
		took = max(length, time.Duration(onTheWay)*time.Second/time.Duration(perSecond))
		for range 4 {
			p.sample(took)
		}
		*now = now.Add(took)
		p.adjust(*now, onTheWay, true)
	}
	return took
}

func TestPace(t *testing.T) {
	t.Parallel()
	const length = 100 * time.Millisecond
	var p pace
	now := time.Now()
	p.sample(length) // the first chunks find the path empty
	now = now.Add(length)
	p.adjust(now, 16, false)
	if p.limit != 0 {
		t.Errorf("limit before anything waits: %d", p.limit)
	}
	// 400 Mbit/s: 1525 chunks a second, of which 152 are under way when none of them waits.
	took := p.over(&now, length, 1525, 5*time.Second)
	if took > length*3/2 || p.limit < 150 {
		t.Errorf("on a path of 400 Mbit/s: %s, limit %d", took, p.limit)
	}
	took = p.over(&now, length, 900, 5*time.Second)
	if took > length*8/5 || p.limit < 90 {
		t.Errorf("a path that becomes narrower: %s, limit %d", took, p.limit)
	}
	p.over(&now, length, 1525, 10*time.Second)
	if p.limit < 150 {
		t.Errorf("a path that becomes wider again: limit %d", p.limit)
	}
	// A longer path looks like one with a queue, until the shorter time is forgotten. TCP has the rest meanwhile.
	p.over(&now, 2*length, 3000, 2*time.Second)
	if p.limit < minAllowed {
		t.Errorf("limit %d, want at least %d", p.limit, minAllowed)
	}
	p.over(&now, 2*length, 3000, 40*time.Second)
	if p.limit < 400 {
		t.Errorf("a path that becomes longer: limit %d", p.limit)
	}
}
