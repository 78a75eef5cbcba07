package cli

import (
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
)

// Bounds of a client command's memory. A mesh node allocates some 33 MiB of receive buffers as it starts, and touches
// few of them; collecting garbage meanwhile would take a third of a short command's work. A command that runs longer
// collects as usual; the limit bounds what bulk traffic keeps in flight, at a tenth of its speed.
const (
	clientMemoryLimit = 160 << 20 // bytes
	startGCPercent    = 1000      // the first collection starts at 40 MiB
	clientGCPercent   = 100
	startTime         = time.Second
)

// keepMemory marks a command that bounds its own memory, as daemons do.
const keepMemory = "memory"

// Daemon marks a command as one that runs for a long time and bounds its own memory.
func Daemon(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[keepMemory] = "own"
	return cmd
}

// boundMemory sets the memory limits of a client command, unless the environment does.
func boundMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(clientMemoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(startGCPercent)
		time.AfterFunc(startTime, func() { debug.SetGCPercent(clientGCPercent) })
	}
}
