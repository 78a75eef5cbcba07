package engine

import (
	"io"
	"time"
)

const (
	// busyReads within busyTime are a transfer. Its bytes come in segments, and each read of one wakes all that is behind it: a pause lets several come together.
	busyReads = 4
	busyTime  = 2 * time.Millisecond
	readPause = 500 * time.Microsecond
)

// patient reads many segments at once while many come.
type patient struct {
	from  io.Reader
	since time.Time
	reads int
}

func (p *patient) Read(b []byte) (int, error) {
	if p.reads >= busyReads {
		time.Sleep(readPause)
		p.reads = 0
	}
	n, err := p.from.Read(b)
	if now := time.Now(); now.Sub(p.since) > busyTime {
		p.since, p.reads = now, 0
	}
	p.reads++
	return n, err
}
