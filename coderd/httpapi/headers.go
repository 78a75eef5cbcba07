package httpapi

import "net/http"

// contentSecurityPolicy is what a page of this server may load and do: everything from the server itself, nothing from anywhere
// else, and in nobody's frame. What gets into a page by mistake does not run, because inline scripts do not, and cannot dress the
// page up, because inline styles do not either.
const contentSecurityPolicy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"font-src 'self'; connect-src 'self'; worker-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; " +
	"frame-src 'none'; frame-ancestors 'none'"

// secure sets what every answer carries. A handler that serves something else than the server's own pages replaces it.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// NoStore keeps an answer out of every cache.
func NoStore(h http.Header) { h.Set("Cache-Control", "no-store") }
