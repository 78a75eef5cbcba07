package appproxy

import "net/url"

// Relabel parses a label and formats it again.
func Relabel(label string) (string, bool) {
	p, ok := parseLabel(label)
	return p.Label(), ok
}

// PathBase returns the path that an app's path redirects to.
func PathBase(u *url.URL) (string, bool) {
	p, ok := parsePath(u)
	return p.base, ok
}

// InProgress returns how many requests are in progress.
func (h *Handler) InProgress() int {
	h.crowd.mu.Lock()
	defer h.crowd.mu.Unlock()
	return h.crowd.all
}
