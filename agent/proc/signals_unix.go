//go:build unix

package proc

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// leftIgnored are not caught: a write to a terminal by a process in its background would be tried again for ever.
var leftIgnored = []syscall.Signal{syscall.SIGTTIN, syscall.SIGTTOU}

// DefaultSignals has children start with the default dispositions of signals, also where this process was started with some
// ignored, as by nohup: what is ignored stays so over exec, and a shell would not hear of its terminal's end. Such signals are
// caught from then on, and thrown away; exec resets what is caught. Everything that starts processes calls it first. It is idempotent.
var DefaultSignals = sync.OnceFunc(func() {
	unheard := make(chan os.Signal, 1)
	ignored := isIgnored()
	for n := syscall.Signal(1); n < 32; n++ {
		if ignored(n) && !slices.Contains(leftIgnored, n) {
			signal.Notify(unheard, n)
		}
	}
})

// runtimeIgnores is what Go's runtime knows: that SIGHUP and SIGINT are ignored.
func runtimeIgnores(sig syscall.Signal) bool { return signal.Ignored(sig) }
