//go:build unix

package agent

import (
	"os"
	"os/signal"
	"syscall"
)

// restartSignals receives requests to restart the agent's process.
func restartSignals(ownProcess bool) chan os.Signal {
	restarts := make(chan os.Signal, 1)
	if ownProcess {
		signal.Notify(restarts, syscall.SIGUSR1)
	}
	return restarts
}
