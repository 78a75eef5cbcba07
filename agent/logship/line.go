package logship

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

// maxLine is the longest line in bytes; a longer one is stored as several.
const maxLine = 8 << 10

// Level is a line's severity, in the numbers of the protocol.
type Level int32

const (
	Debug Level = 1
	Info  Level = 2
	Warn  Level = 3
	Error Level = 4
)

// Line is one line of a source.
type Line struct {
	Seq    uint64 // set when it is first sent
	At     time.Time
	Level  Level
	Output string // valid UTF-8 without NUL and newline
}

// clean converts a line's bytes to text that every store accepts.
func clean(b []byte) string {
	text := strings.ToValidUTF8(string(bytes.TrimSuffix(b, []byte("\r"))), "\uFFFD")
	return strings.ReplaceAll(text, "\x00", "\uFFFD")
}

// Writer splits output into lines. It is safe for concurrent use, never blocks and never fails. Close stores a last
// line without a newline.
type Writer struct {
	source *Source
	level  Level

	mu   sync.Mutex // guards rest
	rest []byte     // the incomplete line, at most maxLine
}

// Writer returns a writer that stores lines of one level.
func (s *Source) Writer(level Level) *Writer { return &Writer{source: s, level: level} }

func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		part := b
		if end >= 0 {
			part = b[:end]
		}
		if room := maxLine - len(w.rest); len(part) > room {
			// Do not cut inside a character, if possible.
			cut := room
			for cut > 0 && cut > room-4 && part[cut]&0xc0 == 0x80 {
				cut--
			}
			if cut == 0 && len(w.rest) == 0 {
				cut = room
			}
			w.rest = append(w.rest, part[:cut]...)
			w.flush()
			b = b[cut:]
			continue
		}
		w.rest = append(w.rest, part...)
		if end < 0 {
			return n, nil
		}
		w.flush()
		b = b[end+1:]
	}
	return n, nil
}

// Close stores the last line if it has no newline.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		w.flush()
	}
	return nil
}

// flush stores rest as a line. Called with mu held.
func (w *Writer) flush() {
	w.source.Add(w.level, clean(w.rest))
	w.rest = w.rest[:0]
}
