package laptop

import (
	"net/netip"
	"strings"
)

// A resolver configuration of ours begins with marker. It says how it was made, so that it can be taken back after a
// crash of the machine, too: what follows linkMark is where the symbolic link led that it has replaced, and what
// follows wasMark is the original of the next line.
const (
	marker   = `# coder connect wrote this file. "coder connect down" restores the original.`
	linkMark = "# coder connect has replaced a link to "
	wasMark  = "# coder connect has changed "
)

// ours reports whether a resolver configuration is ours.
func ours(text string) bool { return strings.HasPrefix(text, marker+"\n") }

// withServer returns a resolver configuration (resolv.conf(5)) that asks a name server before those of the original,
// which was a symbolic link unless link is empty. The others stay in the file: if coder connect is killed, its address
// has no route, and programs go on to the next server at once.
func withServer(original, link string, server netip.Addr) string {
	var b strings.Builder
	b.WriteString(marker + "\n")
	if link != "" {
		b.WriteString(linkMark + link + "\n")
	}
	b.WriteString("nameserver " + server.String() + "\n")
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
			if len(kept) < len(fields) {
				b.WriteString(wasMark + line + "\n")
				line = strings.Join(kept, " ")
			}
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// withoutServer returns what withServer was called with, for a text that is ours.
func withoutServer(text string) (original, link string) {
	var b strings.Builder
	rest := strings.TrimPrefix(text, marker+"\n")
	if after, ok := strings.CutPrefix(rest, linkMark); ok {
		link, rest, _ = strings.Cut(after, "\n")
	}
	_, rest, _ = strings.Cut(rest, "\n") // our server
	changed := false
	for line := range strings.Lines(rest) {
		was, isMark := strings.CutPrefix(line, wasMark)
		switch {
		case changed:
			changed = false
		case isMark:
			changed = true
			b.WriteString(was)
		default:
			b.WriteString(line)
		}
	}
	return b.String(), link
}
