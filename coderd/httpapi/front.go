package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Transport says how browsers are kept on HTTPS, as the value of the header Strict-Transport-Security (RFC 6797). Empty
// means not.
type Transport string

// ParseTransport returns the value of the header: for how long a browser uses HTTPS only, with the options
// includeSubDomains and preload. The zero duration without options means none.
func ParseTransport(age time.Duration, options []string, accessURL *url.URL) (Transport, error) {
	const flag = "--strict-transport-security"
	switch {
	case age < 0:
		return "", fault.New(fault.Invalid, "%s cannot be negative", flag)
	case age == 0 && len(options) > 0:
		return "", fault.New(fault.Invalid, "%s-options requires %s", flag, flag)
	case age == 0:
		return "", nil
	case accessURL.Scheme != "https":
		return "", fault.New(fault.Invalid, "%s requires an access URL that starts with https://", flag)
	}
	value := "max-age=" + strconv.Itoa(int(age/time.Second))
	for _, known := range []string{"includeSubDomains", "preload"} {
		if slices.ContainsFunc(options, func(o string) bool { return strings.EqualFold(o, known) }) {
			value += "; " + known
		}
	}
	for _, o := range options {
		if !strings.EqualFold(o, "includeSubDomains") && !strings.EqualFold(o, "preload") {
			return "", fault.New(fault.Invalid, "%s-options cannot contain %q: it knows includeSubDomains and preload",
				flag, o)
		}
	}
	return Transport(value), nil
}

// Handler adds the header to every response.
func (t Transport) Handler(next http.Handler) http.Handler {
	if t == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", string(t))
		next.ServeHTTP(w, r)
	})
}

// RedirectPages redirects browsers that open a page at another host than the access URL's, or without the HTTPS that
// this server provides itself. Requests of programs (the API, downloads, the relay, health checks) are served at every
// address, since agents and servers may use others.
func RedirectPages(accessURL *url.URL, servesTLS bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plain := servesTLS && accessURL.Scheme == "https" && r.TLS == nil && !clientaddr.Proxied(r)
		elsewhere := !strings.EqualFold(hostPort(r.Host, accessURL.Scheme), hostPort(accessURL.Host, accessURL.Scheme))
		page := (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == "" &&
			!forPrograms(r.URL.Path)
		if !page || !plain && !elsewhere {
			next.ServeHTTP(w, r)
			return
		}
		to := url.URL{
			Scheme: accessURL.Scheme, Host: accessURL.Host, Path: "/" + strings.TrimLeft(r.URL.Path, "/"),
			RawQuery: r.URL.RawQuery,
		}
		http.Redirect(w, r, to.String(), http.StatusTemporaryRedirect)
	})
}

func forPrograms(path string) bool {
	for _, prefix := range []string{"/api", "/bin", "/derp", "/healthz", "/scim", "/.well-known", "/install.sh", "/install.ps1", "/latency-check"} {
		if rest, ok := strings.CutPrefix(path, prefix); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// hostPort adds the scheme's port to a host without one.
func hostPort(host, scheme string) string {
	u := url.URL{Host: host}
	if u.Port() != "" {
		return host
	}
	if scheme == "https" {
		return host + ":443"
	}
	return host + ":80"
}
