package cli

import (
	"net"
	"strings"

	"github.com/codermesh/codermesh/internal/fault"
)

// remoteSpec is one forward from the workspace to this machine.
type remoteSpec struct {
	network, remote string // tcp or unix, and where the workspace listens
	dialNet, local  string // tcp or unix, and where it leads
}

// parseRemoteForward reads [address:]port:host:port, or socket:socket with absolute paths.
func parseRemoteForward(spec string) (remoteSpec, error) {
	bad := fault.New(fault.Invalid, "--remote-forward %q is not [address:]port:host:port or /socket:/socket", spec)
	if strings.HasPrefix(spec, "/") {
		remote, local, ok := strings.Cut(spec, ":")
		if !ok || !strings.HasPrefix(local, "/") {
			return remoteSpec{}, bad
		}
		return remoteSpec{"unix", remote, "unix", local}, nil
	}
	parts := splitColons(spec)
	if len(parts) == 3 {
		parts = append([]string{"127.0.0.1"}, parts...)
	}
	if len(parts) != 4 || parts[0] == "" || parts[2] == "" {
		return remoteSpec{}, bad
	}
	for _, port := range []string{parts[1], parts[3]} {
		if _, err := parsePort(port); err != nil {
			return remoteSpec{}, bad
		}
	}
	return remoteSpec{"tcp", net.JoinHostPort(parts[0], parts[1]), "tcp", net.JoinHostPort(parts[2], parts[3])}, nil
}

// splitColons splits at colons outside of brackets, and takes the brackets off.
func splitColons(text string) (parts []string) {
	depth, start := 0, 0
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || text[i] == ':' && depth == 0:
			parts = append(parts, strings.Trim(text[start:i], "[]"))
			start = i + 1
		case text[i] == '[':
			depth++
		case text[i] == ']':
			depth--
		}
	}
	return parts
}
