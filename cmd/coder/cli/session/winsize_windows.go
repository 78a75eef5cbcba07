package session

import (
	"context"
	"os"
	"time"

	"golang.org/x/term"
)

// watchSize calls resized when the console's size has changed, until ctx ends. It polls, since Windows sends no signal.
func watchSize(ctx context.Context, terminal *os.File, resized func(width, height int)) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	width, height, _ := term.GetSize(int(terminal.Fd())) // zero counts as changed
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w, h, err := term.GetSize(int(terminal.Fd()))
		if err == nil && (w != width || h != height) {
			width, height = w, h
			resized(w, h)
		}
	}
}
