package engine

import (
	"io"
	"time"
)

const (
	// busyReads within busyTime are a transfer, if they bring busyBytes or more. Each read of a packet or two wakes all that is behind it, so
	// that a pause pays in which several come. Keystrokes, questions and their answers are shorter. UDP sockets are no place for it: magicsock
	// reads two packets at once at most, whatever waits.
	busyReads = 4
	busyBytes = 1000
	busyTime  = 2 * time.Millisecond
	readPause = 500 * time.Microsecond
)

// patientReader reads many segments at once while many come.
type patientReader struct {
	from  io.Reader
	since time.Time
	reads int
}

func (p *patientReader) Read(b []byte) (int, error) {
	if p.reads >= busyReads {
		time.Sleep(readPause)
		p.reads = 0
	}
	n, err := p.from.Read(b)
	if n >= busyBytes && n < len(b) {
		if now := time.Now(); now.Sub(p.since) > busyTime {
			p.since, p.reads = now, 0
		}
		p.reads++
	}
	return n, err
}
