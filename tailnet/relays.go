package tailnet

import (
	"fmt"
	"net/url"
	"slices"
	"sync"

	"github.com/codermesh/codermesh/v2/tailnet/engine"
)

// maxRegions is the maximum number of relays in a map.
const maxRegions = 64

// relays holds the relays of the current map.
type relays struct {
	ops sync.Mutex // serializes changes of the map; held while calling the engine

	mu     sync.Mutex // never held while calling the engine
	listed []RelayRegion
	extra  bool // the map has further STUN servers
}

func (r *relays) regions() []RelayRegion {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed
}

// stun reports whether any relay has a STUN server.
func (r *relays) stun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.extra || slices.ContainsFunc(r.listed, func(region RelayRegion) bool { return region.STUNPort != 0 })
}

// home returns the region to use as home: the current one if it still exists, otherwise the first, or 0 if there is
// none.
func (r *relays) home(current int) int {
	regions := r.regions()
	switch {
	case len(regions) == 0:
		return 0
	case slices.ContainsFunc(regions, func(region RelayRegion) bool { return region.ID == current }):
		return current
	}
	return regions[0].ID
}

// ServerRegion is the region of the relay that the server itself runs, at its own URL.
const ServerRegion = 1

// ExpectRelay makes the server's own relay the node's home until SetRelayMap names one, and starts connecting to it.
// server is as for SetRelayMap. The relay refuses the node until the server has admitted it; connecting early pays off
// because the connection takes as many round trips as the admission does. After SetRelayMap, ExpectRelay does nothing.
func (n *Node) ExpectRelay(server *url.URL) {
	if server == nil || n.closed.Load() {
		return
	}
	n.publishLocal()
	n.relays.ops.Lock()
	defer n.relays.ops.Unlock()
	if len(n.relays.regions()) > 0 {
		return
	}
	n.engine.ExpectRelay(ServerRegion, server)
	n.updateInfo(func(info *NodeInfo) { info.Region = ServerRegion })
}

// SetRelayMap sets the available relays, and whether there are direct paths beside them. server is the URL at which
// this process reaches its server, for relays without a URL of their own. The node has a home relay when this returns;
// it may move to a nearer one once it has measured them.
//
// Relays are reached by an HTTP upgrade at "/derp" below their URL, through the proxy set in the environment, and over
// a websocket where the upgrade does not get through.
func (n *Node) SetRelayMap(m RelayMap, server *url.URL) error {
	known, err := relaysOf(m, server)
	if err != nil {
		return fmt.Errorf("set relay map: %w", err)
	}
	if n.closed.Load() {
		return fmt.Errorf("set relay map: %w", ErrClosed)
	}
	n.relays.ops.Lock()
	defer n.relays.ops.Unlock()
	n.setRelayOnly(m.RelayOnly)
	n.publishLocal()
	n.relays.mu.Lock()
	n.relays.listed = slices.Clone(m.Regions)
	n.relays.extra = slices.ContainsFunc(known, func(r engine.Relay) bool { return len(r.STUN) > 0 })
	n.relays.mu.Unlock()
	home := n.relays.home(n.Info().Region)
	n.engine.SetRelays(known, home)
	n.updateInfo(func(info *NodeInfo) { info.Region = home })
	n.measure("relay map")
	return nil
}

// relaysOf converts a map to the engine's type.
func relaysOf(m RelayMap, server *url.URL) ([]engine.Relay, error) {
	if len(m.Regions) > maxRegions {
		return nil, fmt.Errorf("too many regions: %d", len(m.Regions))
	}
	if len(m.STUN) > MaxSTUN {
		return nil, fmt.Errorf("too many STUN servers: %d", len(m.STUN))
	}
	var further []engine.STUNServer
	for _, address := range m.STUN {
		host, port, err := ParseSTUN(address)
		if err != nil {
			return nil, err
		}
		further = append(further, engine.STUNServer{Host: host, Port: int(port)})
	}
	seen := make(map[int]bool)
	var relays []engine.Relay
	for _, region := range m.Regions {
		if region.ID <= 0 || region.ID > 0xffff || seen[region.ID] {
			return nil, fmt.Errorf("region %d: id is out of range or already in use", region.ID)
		}
		if region.STUNPort < 0 || region.STUNPort > 0xffff {
			return nil, fmt.Errorf("region %d: STUN port %d is out of range", region.ID, region.STUNPort)
		}
		seen[region.ID] = true
		u, own := server, region.URL == ""
		if region.URL != "" {
			var err error
			if u, err = url.Parse(region.URL); err != nil {
				return nil, fmt.Errorf("region %d: %w", region.ID, err)
			}
		}
		if u == nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("region %d: URL must be http or https, with a host", region.ID)
		}
		r := engine.Relay{
			Region: region.ID, Code: region.Code, Name: region.Name, URL: u, STUNPort: region.STUNPort,
			Coordinators: own,
		}
		if region.ID == ServerRegion {
			r.STUN = further
		}
		relays = append(relays, r)
	}
	return relays, nil
}
