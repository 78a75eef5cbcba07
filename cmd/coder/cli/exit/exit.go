// Package exit is how a command ends: with an exit code, and with an error that suggests what to try. It knows no server.
package exit

import (
	"errors"
	"fmt"
)

// Exit codes of the program.
const (
	Failed      = 1
	Interrupted = 130 // 128 + SIGINT, as shells have it
	SSH         = 255 // ssh's own failures, as OpenSSH has it
)

// Error ends the program with a certain code. Err may be nil: everything has been said.
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

// hinted is an error with the command line that may help.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// Try adds to an error what the person may run next: "coder login URL". It is the second line of what is printed.
func Try(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return hinted{err, fmt.Sprintf(format, args...)}
}

// Hint returns what an error suggests to try, if it does.
func Hint(err error) (hint string, ok bool) {
	h, ok := errors.AsType[hinted](err)
	return h.hint, ok
}
