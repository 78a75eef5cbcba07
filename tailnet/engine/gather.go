package engine

import (
	"io"
	"time"
)

const (
	// busyReads reads within busyTime are a transfer if each returns busyBytes or more. Each read of a packet or two
	// wakes everything downstream, so it pays to pause until several have arrived. Keystrokes, requests and their
	// answers are shorter. UDP sockets do not benefit: magicsock reads at most two packets at once, however many are
	// waiting.
	busyReads = 4
	busyBytes = 1000
	busyTime  = 2 * time.Millisecond
	readPause = 500 * time.Microsecond
)

// patientReader reads many segments at once while many arrive.
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
