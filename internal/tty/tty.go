// Package tty is a command's user interface: streams that know whether they are terminals, prompts, tables and
// progress. On a pipe it neither prompts nor draws. It knows no command and no server.
package tty

import (
	"bufio"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Streams are what a command reads and writes: data goes to Out, everything else to Err. Both clean what is printed,
// see Cleaning.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer

	InTTY  bool // questions may be asked
	OutTTY bool // a user reads Out
	ErrTTY bool // a user reads Err: progress may be drawn
	Color  bool // of Err; NO_COLOR turns it off

	once   sync.Once
	reader *bufio.Reader // of In, for questions
}

// Std returns the process's streams. With force they count as terminals.
func Std(force bool) *Streams {
	s := &Streams{In: os.Stdin, Out: Cleaning(os.Stdout), Err: Cleaning(os.Stderr)}
	s.InTTY = force || term.IsTerminal(int(os.Stdin.Fd()))
	s.OutTTY = force || term.IsTerminal(int(os.Stdout.Fd()))
	s.ErrTTY = force || term.IsTerminal(int(os.Stderr.Fd()))
	_, off := os.LookupEnv("NO_COLOR")
	s.Color = s.ErrTTY && !off && os.Getenv("TERM") != "dumb"
	return s
}

// Colored reports whether w is a terminal on which to print colors. NO_COLOR turns them off.
func Colored(w io.Writer) bool {
	f, ok := Raw(w).(*os.File)
	_, off := os.LookupEnv("NO_COLOR")
	return ok && !off && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// lines returns the only buffered reader of In, so that no input that was read ahead is lost between questions.
func (s *Streams) lines() *bufio.Reader {
	s.once.Do(func() { s.reader = bufio.NewReader(s.In) })
	return s.reader
}

// Bold marks text for Err.
func (s *Streams) Bold(text string) string { return s.paint("1", text) }

// Dim marks text for Err as less important.
func (s *Streams) Dim(text string) string { return s.paint("2", text) }

// Red marks text for Err as a failure.
func (s *Streams) Red(text string) string { return s.paint("31", text) }

// Green marks text for Err as a success.
func (s *Streams) Green(text string) string { return s.paint("32", text) }

func (s *Streams) paint(code, text string) string {
	if !s.Color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
