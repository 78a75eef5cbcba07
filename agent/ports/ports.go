// Package ports lists the TCP ports on which programs of a workspace listen. It asks the kernel and nothing else.
//
// On Unix, a workspace may share the network of its host, as processes on the provisioner's host do. Programs of the
// workspace are then those that the agent sees in /proc, and a port belongs to the workspace if one of them runs under
// the account of its socket. In a container or a virtual machine the agent sees all programs.
// github.com/prometheus/procfs would do the same on Linux and add 100 kB to the slim binary.
package ports

import (
	"cmp"
	"net/netip"
	"slices"
)

// Port describes a port on which a program listens.
type Port struct {
	Process string // name of the program, "" when it is another user's
	Network string // "tcp"
	Port    uint16
}

// maxPorts bounds how many ports Listening returns.
const maxPorts = 1024

// reachable reports whether a listener on addr is reachable on the loopback interface: a forward cannot reach others.
func reachable(addr netip.Addr) bool { return addr.IsUnspecified() || addr.Unmap().IsLoopback() }

// ordered returns the ports of programs in the order of their numbers.
func ordered(byPort map[uint16]string) []Port {
	ports := make([]Port, 0, len(byPort))
	for port, process := range byPort {
		ports = append(ports, Port{process, "tcp", port})
	}
	slices.SortFunc(ports, func(a, b Port) int { return cmp.Compare(a.Port, b.Port) })
	return ports[:min(len(ports), maxPorts)]
}
