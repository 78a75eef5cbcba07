package proc

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/windows"
)

// Console is a pseudo console (ConPTY), the terminal of a program: what is written to In are its keys, and Out is its
// screen as a stream with escape sequences. The caller must call HangUp or End, and then Close.
type Console struct {
	In, Out *os.File

	mu     sync.Mutex // guards the fields below
	handle windows.Handle
	ended  bool
}

// NewConsole makes a console of a size in characters.
func NewConsole(columns, rows uint16) (*Console, error) {
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inRead.Close() // the console has its own
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inWrite.Close())
	}
	defer outWrite.Close()
	c := &Console{In: inWrite, Out: outRead}
	if err := windows.CreatePseudoConsole(coord(columns, rows), windows.Handle(inRead.Fd()),
		windows.Handle(outWrite.Fd()), 0, &c.handle); err != nil {
		return nil, errors.Join(fmt.Errorf("create pseudo console: %w", err), inWrite.Close(), outRead.Close())
	}
	return c, nil
}

// coord limits a size to what a console can have: positive numbers of 16 bits. 0 means the usual size.
func coord(columns, rows uint16) windows.Coord {
	at := func(n, usual uint16) int16 {
		if n == 0 {
			n = usual
		}
		return int16(min(n, 1<<15-1))
	}
	return windows.Coord{X: at(columns, 80), Y: at(rows, 24)}
}

// Resize sets the size.
func (c *Console) Resize(columns, rows uint16) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return os.ErrClosed
	}
	return windows.ResizePseudoConsole(c.handle, coord(columns, rows))
}

// End ends the console after its program: Out then ends after what was printed, and must be read meanwhile, because
// some versions of Windows wait for that.
func (c *Console) End() {
	c.mu.Lock()
	ended := c.ended
	c.ended = true
	c.mu.Unlock()
	if !ended {
		windows.ClosePseudoConsole(c.handle)
	}
}

// HangUp ends the console, which asks its programs to end, and ends those that do not within some seconds. What they
// still print is lost.
func (c *Console) HangUp() {
	c.Out.Close() // else the console would wait for a reader
	c.End()
}

// Close closes the files.
func (c *Console) Close() {
	c.In.Close()
	c.Out.Close()
}
