package daemon

import (
	"os"
	"runtime/debug"

	"github.com/codermesh/codermesh/internal/memory"
)

// gcPercent is how much a daemon's memory may grow between two collections, as a share of what is alive. It is small because most
// of that is buffers of mesh nodes and queues of the relay, some 0.7 MB for each connected agent, of which few pages are ever touched. There
// is no limit besides: the collector counts those buffers too, so under a limit a server with many agents would do nothing but collect.
const gcPercent = 20

// BoundMemory bounds the garbage of a daemon that serves many, unless the environment does. The caller must stop the returned Returner.
func BoundMemory() *memory.Returner {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	return memory.Return(memory.Quiet)
}
