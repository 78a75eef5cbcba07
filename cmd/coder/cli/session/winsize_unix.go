//go:build unix

package session

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// watchSize calls resized when the terminal's size has changed, until ctx ends.
func watchSize(ctx context.Context, terminal *os.File, resized func(width, height int)) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	defer signal.Stop(changes)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		}
		if w, h, err := term.GetSize(int(terminal.Fd())); err == nil {
			resized(w, h)
		}
	}
}
