package forward

import (
	"net"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Remote is a forward from the workspace to this machine.
type Remote struct {
	Network, Remote string // tcp or unix, and where the workspace listens
	DialNet, Local  string // tcp or unix, and where it leads
}

// ParseRemote parses [address:]port:host:port, or socket:socket with absolute paths.
func ParseRemote(spec string) (Remote, error) {
	bad := fault.New(fault.Invalid, "--remote-forward %q is not [address:]port:host:port or /socket:/socket", spec)
	if strings.HasPrefix(spec, "/") {
		remote, local, ok := strings.Cut(spec, ":")
		if !ok || !strings.HasPrefix(local, "/") {
			return Remote{}, bad
		}
		return Remote{"unix", remote, "unix", local}, nil
	}
	parts := splitColons(spec)
	if len(parts) == 3 {
		parts = append([]string{"127.0.0.1"}, parts...)
	}
	if len(parts) != 4 || parts[0] == "" || parts[2] == "" {
		return Remote{}, bad
	}
	for _, port := range []string{parts[1], parts[3]} {
		if _, err := parsePort(port); err != nil {
			return Remote{}, bad
		}
	}
	return Remote{"tcp", net.JoinHostPort(parts[0], parts[1]), "tcp", net.JoinHostPort(parts[2], parts[3])}, nil
}

// splitColons splits at colons outside of brackets, and strips the brackets.
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
