package ports

import (
	"fmt"
	"net/netip"

	"github.com/shirou/gopsutil/v4/net"
	"github.com/shirou/gopsutil/v4/process"
)

// Listening returns the TCP ports that are reachable on the loopback interface, ordered by number. Sockets of other
// accounts are not visible.
func Listening() ([]Port, error) {
	sockets, err := net.Connections("tcp")
	if err != nil {
		return nil, fmt.Errorf("read sockets: %w", err)
	}
	byPort := map[uint16]string{}
	for _, s := range sockets {
		if s.Status != "LISTEN" || s.Laddr.Port == 0 || s.Laddr.Port > 1<<16-1 {
			continue
		}
		addr, err := netip.ParseAddr(s.Laddr.IP)
		if err != nil && s.Laddr.IP != "*" || err == nil && !reachable(addr) {
			continue
		}
		if port := uint16(s.Laddr.Port); byPort[port] == "" {
			byPort[port] = programName(s.Pid)
		}
	}
	return ordered(byPort), nil
}

// programName returns the name of a process's program, or "".
func programName(pid int32) string {
	p, err := process.NewProcess(pid)
	if err != nil {
		return ""
	}
	name, err := p.Name()
	if err != nil {
		return ""
	}
	return name
}
