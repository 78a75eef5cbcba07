// Package testwait is how tests wait for what happens in other goroutines and processes. A test receives a signal where
// there is one (For), and looks again and again where there is none (Until). Both fail the test with what it waited
// for, and the state at the end.
package testwait

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

const (
	// Patience is how long a test waits. It is many times what anything takes on a busy machine: it ends tests that
	// would never end, and measures nothing.
	Patience = time.Minute

	// The pause between two checks grows, and is several times as long as a check took: one that costs a process would
	// otherwise keep a processor from what it waits for.
	firstPause, lastPause = time.Millisecond, 50 * time.Millisecond
	timesCheck, longPause = 4, 500 * time.Millisecond
)

// For returns what arrives on a channel; a closed one returns the zero value.
func For[T any](t testing.TB, what string, signal <-chan T) T {
	t.Helper()
	timeout := time.NewTimer(Patience)
	defer timeout.Stop()
	select {
	case v := <-signal:
		return v
	case <-timeout.C:
		t.Fatalf("still not after %s: %s", Patience, what)
		panic("unreachable")
	}
}

// Reader is the part of a net.Conn that ReadFull needs.
type Reader interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

// ReadFull fills buf from a connection. It waits for the next bytes, not for all of them: how long many bytes take
// depends on the machine. It returns how many it has read, with the error that ended it, which is
// os.ErrDeadlineExceeded after Patience without a byte.
func ReadFull(conn Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		if err := conn.SetReadDeadline(time.Now().Add(Patience)); err != nil {
			return n, err
		}
		var more int
		more, err = conn.Read(buf[n:])
		n += more
	}
	if n == len(buf) {
		err = nil
	}
	return n, err
}

// Until returns when check does not fail any more. Its last error is the state that is printed. Use it for what gives
// no signal: another process, a file, a row of a database.
func Until(t testing.TB, what string, check func() error) {
	t.Helper()
	pause := firstPause
	for deadline := time.Now().Add(Patience); ; {
		began := time.Now()
		err := check()
		if err == nil {
			return
		}
		now := time.Now()
		if now.After(deadline) {
			t.Fatalf("still not after %s: %s: %v", Patience, what, err)
		}
		time.Sleep(max(pause, min(timesCheck*now.Sub(began), longPause)))
		pause = min(pause*3/2, lastPause)
	}
}

// Equal is the state of a value that shall become another: nil when it has.
func Equal[T comparable](got, want T) error {
	return Unless(got == want, "got %+v, want %+v", got, want)
}

// Len is the state of a list that shall have n elements.
func Len[E any](got []E, n int) error {
	return Unless(len(got) == n, "got %d, want %d: %+v", len(got), n, got)
}

// Contains is the state of a text, such as a log, that shall contain another. It shows the end of a long one.
func Contains(text, want string) error {
	return Unless(strings.Contains(text, want), "want %q in %q", want, text[max(0, len(text)-4000):])
}

// Unless is any other state: nil if ok, and what was seen instead if not.
func Unless(ok bool, format string, seen ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, seen...)
}
