package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// secondSignal returns a channel that the second signal to end the process closes: the first requests an orderly end,
// which may take as long as a build. Call it before the first signal can arrive: between two registrations a signal
// would kill. forget ends it.
func secondSignal() (second <-chan struct{}, forget func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	heard, over := make(chan struct{}), make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for range 2 {
			select {
			case <-signals:
			case <-over:
				return
			}
		}
		close(heard)
	})
	return heard, func() {
		signal.Stop(signals)
		close(over)
		waiting.Wait()
	}
}
