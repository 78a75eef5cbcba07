package apps

import "net/url"

// Relabel reads a label and writes it again.
func Relabel(label string) (string, bool) {
	p, ok := parseLabel(label)
	return p.label(), ok
}

// PathBase is to where an app's path is redirected.
func PathBase(u *url.URL) (string, bool) {
	p, ok := parsePath(u)
	return p.base, ok
}
