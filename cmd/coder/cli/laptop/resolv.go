package laptop

import (
	"net/netip"
	"strings"
)

// marker begins a resolver configuration that is ours.
const marker = `# coder connect wrote this file. "coder connect down" restores the original.`

// ours reports whether a resolver configuration is ours.
func ours(text string) bool { return strings.HasPrefix(text, marker+"\n") }

// withServer returns a resolver configuration (resolv.conf(5)) that asks a name server before those of the original. They stay in the file: if
// coder connect is killed, its address has no route, and programs go on to the next server at once.
func withServer(original string, server netip.Addr) string {
	var b strings.Builder
	b.WriteString(marker + "\nnameserver " + server.String() + "\n")
	for line := range strings.Lines(original) {
		line = strings.TrimRight(line, "\r\n")
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] == "options" {
			kept := fields[:1]
			for _, option := range fields[1:] {
				if option != "rotate" { // it would ask the other servers for workspaces
					kept = append(kept, option)
				}
			}
			line = strings.Join(kept, " ")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
