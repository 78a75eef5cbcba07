//go:build unix

package agent

import (
	"os"
	"os/signal"
	"syscall"
)

// restartSignals receives the signals that ask an agent in its own process to restart.
func restartSignals(ownProcess bool) chan os.Signal {
	restarts := make(chan os.Signal, 1)
	if ownProcess {
		signal.Notify(restarts, syscall.SIGUSR1)
	}
	return restarts
}

// stateFolder is where an account keeps the agent's state, below its home folder.
var stateFolder = []string{".local", "state", "codermesh-agent"}
