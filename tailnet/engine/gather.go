package engine

import (
	"io"
	"time"
)

const (
	// busyReads within busyTime are a transfer, if they bring busyBytes or more. Each read of a packet or two wakes all that is behind it, so
	// that a pause pays in which several come. Keystrokes, questions and their answers are shorter.
	busyReads = 4
	busyBytes = 1000
	busyTime  = 2 * time.Millisecond
	readPause = 500 * time.Microsecond
)

// gatherer tells a reader when to wait for more to come together. It belongs to one goroutine.
type gatherer struct {
	since time.Time
	reads int
}

// wait is called before a read.
func (p *gatherer) wait() {
	if p.reads >= busyReads {
		time.Sleep(readPause)
		p.reads = 0
	}
}

// note is called after a read that brought n bytes, less than there was room for.
func (p *gatherer) note(n int) {
	if n < busyBytes {
		return
	}
	if now := time.Now(); now.Sub(p.since) > busyTime {
		p.since, p.reads = now, 0
	}
	p.reads++
}

// patientReader reads many segments at once while many come.
type patientReader struct {
	from io.Reader
	gatherer
}

func (p *patientReader) Read(b []byte) (int, error) {
	p.wait()
	n, err := p.from.Read(b)
	if n < len(b) {
		p.note(n)
	}
	return n, err
}
