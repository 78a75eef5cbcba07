package session

import "io"

// escape passes on typed input, except "~." at the start of a line, which calls lost once and ends the input.
type escape struct {
	r     io.Reader
	lost  func()
	state int // 0 inside a line, 1 at its start, 2 after a tilde there
	begun bool
}

func (e *escape) Read(b []byte) (int, error) {
	if len(b) < 2 { // one byte more than is read, for a tilde that was held back
		return 0, io.ErrShortBuffer
	}
	if !e.begun {
		e.begun, e.state = true, 1
	}
	n, err := e.r.Read(b[1:])
	out := b[:0]
	for _, c := range b[1 : 1+n] {
		switch {
		case e.state == 1 && c == '~':
			e.state = 2
			continue
		case e.state == 2 && c == '.':
			e.lost()
			return 0, io.EOF
		case e.state == 2 && c != '~': // "~~" is one tilde
			out = append(out, '~')
		}
		out = append(out, c)
		e.state = 0
		if c == '\r' || c == '\n' {
			e.state = 1
		}
	}
	return len(out), err
}
