//go:build unix

package agent

import (
	"os"
	"os/signal"
	"syscall"
)

// restartSignals receives when somebody wants a process that is the agent's alone to be started again.
func restartSignals(ownProcess bool) chan os.Signal {
	restarts := make(chan os.Signal, 1)
	if ownProcess {
		signal.Notify(restarts, syscall.SIGUSR1)
	}
	return restarts
}
