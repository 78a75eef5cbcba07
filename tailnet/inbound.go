package tailnet

import "slices"

// Inbound is the set of a node's ports to which a peer may open connections, TCP and UDP alike. The zero value is
// InboundNone. Replies to connections that the node itself opened always pass.
type Inbound struct {
	all   bool
	ports []uint16 // sorted, without duplicates, never written to after construction
}

var (
	// InboundNone lets a peer open nothing.
	InboundNone = Inbound{}
	// InboundAll lets a peer open every port and ping the node.
	InboundAll = Inbound{all: true}
)

// InboundPorts lets a peer open the given ports and ping the node.
func InboundPorts(ports ...uint16) Inbound {
	sorted := slices.Clone(ports)
	slices.Sort(sorted)
	return Inbound{ports: slices.Compact(sorted)}
}

// Allows reports whether the peer may open the port.
func (in Inbound) Allows(port uint16) bool {
	if in.all {
		return true
	}
	_, found := slices.BinarySearch(in.ports, port)
	return found
}

// Any reports whether the peer may open any port at all.
func (in Inbound) Any() bool { return in.all || len(in.ports) > 0 }

// Equal reports whether both allow the same ports.
func (in Inbound) Equal(other Inbound) bool {
	return in.all == other.all && slices.Equal(in.ports, other.ports)
}

// covers reports whether in allows everything that other allows.
func (in Inbound) covers(other Inbound) bool {
	if in.all {
		return true
	}
	if other.all {
		return false
	}
	return !slices.ContainsFunc(other.ports, func(port uint16) bool { return !in.Allows(port) })
}
