package appproxy

import (
	"maps"
	"net/http"
	"strings"
)

// siteHeaders act on more than the host that sends them, on what other apps at the same host do later, or on the whole
// site below the dashboard's domain. No app may send them.
var siteHeaders = []string{
	// Cookies and sessions of the site: "cookies" in Clear-Site-Data means those of the registrable domain.
	"Clear-Site-Data", "Set-Login", "Set-Cookie2", "Secure-Session-Registration", "Sec-Session-Registration",
	// How browsers connect, also to names below the host, and to apps that have the host afterwards. Only the operator
	// sets that.
	"Strict-Transport-Security", "Alt-Svc", "Public-Key-Pins", "Public-Key-Pins-Report-Only", "Expect-Ct",
	// Who is told about every later visit.
	"Nel", "Report-To",
	// Advertising, which browsers count by site.
	"Observe-Browsing-Topics", "Attribution-Reporting-Register-Source", "Attribution-Reporting-Register-Trigger",
	"Attribution-Reporting-Register-Os-Source", "Attribution-Reporting-Register-Os-Trigger",
}

// originHeaders act on the host that sends them, which is the dashboard's for an app by path.
var originHeaders = []string{
	"Set-Cookie", "Service-Worker-Allowed", "Access-Control-Allow-Credentials", "Cross-Origin-Opener-Policy",
	"Cross-Origin-Embedder-Policy",
	"Cross-Origin-Resource-Policy", "Reporting-Endpoints", "Origin-Agent-Cluster",
	"Content-Security-Policy-Report-Only", "Accept-Ch", "Critical-Ch",
	"Use-As-Dictionary", "Shared-Storage-Write", "Activate-Storage-Access", "Supports-Loading-Mode",
	"Speculation-Rules",
	// A password prompt would appear under the dashboard's name.
	"WWW-Authenticate", "Proxy-Authenticate",
}

// confine removes everything from an app's answer that would affect more than the app. finalAnswer does the rest.
func (h *Handler) confine(resp *http.Response) {
	to := resp.Request.Context().Value(routeKey{}).(route)
	header := resp.Header
	remove(header, siteHeaders)
	resp.Trailer = nil // it is not forwarded, so it is not announced either
	if to.path != "" {
		confinePath(header)
		return
	}
	if to.friend != "" && header.Get("Access-Control-Allow-Origin") == "" {
		allow(header, to.friend)
	}
	lines := header.Values("Set-Cookie")
	header.Del("Set-Cookie")
	for _, line := range lines {
		if line = hostCookie(line); line != "" {
			header.Add("Set-Cookie", line)
		}
	}
}

func remove(h http.Header, names []string) {
	for _, name := range names {
		h.Del(name)
	}
}

// hostCookie returns a Set-Cookie line restricted to this host and otherwise unchanged; "" for a cookie that an app
// must not set. A cookie for a whole domain would reach other apps too.
func hostCookie(line string) string {
	parts := strings.Split(line, ";")
	name, _, _ := strings.Cut(parts[0], "=")
	if isOurs(name) || strings.TrimSpace(name) == "" {
		return ""
	}
	kept := parts[:1]
	for _, part := range parts[1:] {
		if attribute, _, _ := strings.Cut(part, "="); !strings.EqualFold(strings.TrimSpace(attribute), "domain") {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ";")
}

// confinePath makes an answer on the dashboard's host harmless there.
func confinePath(h http.Header) {
	remove(h, originHeaders)
	h.Add("Content-Security-Policy", sandbox) // in addition to the app's own: the stricter one applies
	h.Set("Referrer-Policy", "no-referrer")   // the address contains the token
	h.Set("X-Content-Type-Options", "nosniff")
	// The page's own requests come from its sandboxed origin. The token in the address is the only credential.
	h.Set("Access-Control-Allow-Origin", "*")
}

// finalAnswer writes one answer of an app, which confine has seen. It drops what confine does not see: interim answers
// (1xx), which the reverse proxy passes on as they come, and trailers, which it reads after the body.
type finalAnswer struct {
	http.ResponseWriter
	header  http.Header // of the answer; what is added after it was written is a trailer
	written bool
}

func (f *finalAnswer) Header() http.Header { return f.header }

func (f *finalAnswer) WriteHeader(status int) {
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		// the proxy added the interim answer's to the other one, and clears it
		f.header = f.ResponseWriter.Header().Clone()
		return
	}
	if !f.written {
		f.written = true
		to := f.ResponseWriter.Header()
		clear(to)
		maps.Copy(to, f.header)
		f.header = f.header.Clone()
	}
	f.ResponseWriter.WriteHeader(status)
}

func (f *finalAnswer) Write(b []byte) (int, error) {
	if !f.written {
		f.WriteHeader(http.StatusOK)
	}
	return f.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush, and take the connection over for a websocket.
func (f *finalAnswer) Unwrap() http.ResponseWriter { return f.ResponseWriter }
