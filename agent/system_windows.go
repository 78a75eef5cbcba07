package agent

import "os"

// restartSignals receives nothing: no signal of this system asks an agent to restart.
func restartSignals(bool) chan os.Signal { return make(chan os.Signal) }

// stateFolder is where an account keeps the agent's state, below its home folder.
var stateFolder = []string{"AppData", "Local", "codermesh-agent"}
