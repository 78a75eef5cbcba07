package httpapi

import "net/http"

// contentSecurityPolicy restricts what a page of this server may load and do: everything comes from the server itself,
// nothing from elsewhere, and no site may frame the page. Injected content cannot run, because inline scripts are
// blocked, and cannot disguise the page, because inline styles are blocked too.
const contentSecurityPolicy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"font-src 'self'; connect-src 'self'; worker-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; " +
	"frame-src 'none'; frame-ancestors 'none'"

// secure sets the headers that every answer carries. A handler that serves anything but the server's own pages replaces
// them.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not support frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// NoStore keeps an answer out of all caches.
func NoStore(h http.Header) { h.Set("Cache-Control", "no-store") }
