package daemon

import (
	"os"
	"runtime/debug"

	"github.com/codermesh/codermesh/v2/internal/memory"
)

// How much a daemon's memory may grow between two collections, as a percentage of what is alive. The percentages are
// small because most of that is buffers of mesh nodes and queues of the relay, some 0.7 MB for each connected agent, of
// which few pages are ever touched. There is no limit besides: the collector counts those buffers too, so under a limit
// a server with many agents would do nothing but collect.
const (
	// startPercent holds until the daemon has started. All agents come back to a server that starts: while its memory
	// grows, restPercent would make it collect twice as often.
	startPercent = 50
	restPercent  = 20
)

// BoundMemory bounds the garbage of a daemon that serves many, unless the environment does. The caller must stop the
// returned Returner.
func BoundMemory() *memory.Returner {
	if os.Getenv("GOGC") != "" {
		return memory.Return(memory.Quiet, nil)
	}
	debug.SetGCPercent(startPercent)
	return memory.Return(memory.Quiet, func() { debug.SetGCPercent(restPercent) })
}
