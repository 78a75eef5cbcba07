// Package exit defines how a command ends: with an exit code, and with an error that suggests what to try. It knows no
// server.
package exit

import (
	"errors"
	"fmt"
)

// Exit codes of the program.
const (
	Failed      = 1
	Interrupted = 130 // 128 + SIGINT, like shells
	SSH         = 255 // failures of ssh itself, like OpenSSH
)

// Error ends the program with an exit code. A nil Err prints nothing.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// hinted is an error with a hint: a command line or a sentence.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// Try adds to an error what the user can do next, printed on a second line: a command such as "coder login URL", or a
// sentence.
func Try(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return hinted{err, fmt.Sprintf(format, args...)}
}

// Hint returns what an error suggests to try, if anything.
func Hint(err error) (hint string, ok bool) {
	h, ok := errors.AsType[hinted](err)
	return h.hint, ok
}
