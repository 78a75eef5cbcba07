//go:build unix

package proc

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// leftIgnored lists signals that stay ignored: if they were caught, a background process would retry its write to the
// terminal forever.
var leftIgnored = []syscall.Signal{syscall.SIGTTIN, syscall.SIGTTOU}

// DefaultSignals makes children start with default signal dispositions even if this process was started with some
// signals ignored, as by nohup: ignored signals stay ignored across exec, and a shell would not notice the end of its
// terminal. This process catches and discards such signals from now on, because exec resets caught ones. Call it before
// starting processes. It is idempotent.
var DefaultSignals = sync.OnceFunc(func() {
	unheard := make(chan os.Signal, 1)
	ignored := isIgnored()
	for n := syscall.Signal(1); n < 32; n++ {
		if ignored(n) && !slices.Contains(leftIgnored, n) {
			signal.Notify(unheard, n)
		}
	}
})

// runtimeIgnores reports what Go's runtime knows: whether SIGHUP or SIGINT is ignored.
func runtimeIgnores(sig syscall.Signal) bool { return signal.Ignored(sig) }
