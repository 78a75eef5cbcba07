package tailnet

import (
	"os"
	"sync"

	"tailscale.com/envknob"
	"tailscale.com/net/netns"
)

// Some switches of the mesh engine belong to the process, not to a node. All of them are turned here, and nowhere else:
//
//   - Sockets stay in the process's own network namespace and routing table. The engine otherwise marks them for a VPN
//     that owns the machine's default route, which this one never does.
//   - Keepalives on accepted TCP connections: after 5 idle minutes, then every minute. Nine unanswered ones end the
//     connection, so about a quarter of an hour after its peer vanished. A laptop that slept for less keeps its sessions.
//   - The scheme by which relays are reached, http or https. See claimScheme.
//
// The engine's switches are environment variables that it reads when they are set through it. They are removed from the
// environment at once, so that no child process (a user's shell in a workspace, say) inherits them.
var setUpProcess = sync.OnceFunc(func() {
	netns.SetEnabled(false)
	setKnob("TS_NETSTACK_KEEPALIVE_IDLE", "5m")
	setKnob("TS_NETSTACK_KEEPALIVE_INTERVAL", "1m")
})

func setKnob(name, value string) {
	if os.Getenv(name) != "" {
		return // whoever runs the process decided
	}
	envknob.Setenv(name, value)
	os.Unsetenv(name)
}

var scheme struct {
	sync.Mutex
	claimed string // "http" or "https", "" before the first claim
}

// claimScheme returns the scheme by which the engine itself talks to relays in this process: that of the first claim. The
// engine cannot mix schemes; relays of the other scheme are reached through a bridge, at some cost.
func claimScheme(want string) string {
	scheme.Lock()
	defer scheme.Unlock()
	if scheme.claimed == "" {
		scheme.claimed = want
		if want == "http" {
			setKnob("TS_DEBUG_USE_DERP_HTTP", "1")
		}
	}
	return scheme.claimed
}
