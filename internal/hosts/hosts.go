// Package hosts refuses requests for a host that is not the server's own. A page of another site can give its own name
// the address of a server that only the visitor reaches (DNS rebinding); the browser then takes that server for the
// page's own. The header Host still has the page's name, so that a server that answers only to its own names is safe.
// The package knows no route.
package hosts

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// complainEvery bounds how often the log reports a refusal.
const complainEvery = time.Minute

// Options are the names of a server.
type Options struct {
	// URLs are the addresses of the server; only their hosts count. Nil ones are ignored.
	URLs []*url.URL
	// Wildcard is the pattern of the hosts of apps, such as *.apps.example.com. Empty: none.
	Wildcard string
	// Trusted are further names, which Parse has checked.
	Trusted []string
	// Certified reports whether the server holds a certificate for a name. Nil: for none.
	Certified func(name string) bool
	// Setting is how an operator adds a name, for the message: "--trusted-hosts". Empty: there is no way.
	Setting string
	// Logger reports refusals, since they may be an operator's mistake. Nil: nothing does.
	Logger *slog.Logger
}

// Hosts knows the names of a server. Safe for concurrent use.
type Hosts struct {
	names     map[string]bool
	suffixes  []string // of any name that is longer
	certified func(name string) bool
	setting   string
	log       *slog.Logger

	mu         sync.Mutex
	complained time.Time // guarded by mu
}

// New returns the names of a server: addresses, localhost and the names below it, the machine's own name, with and
// without a domain, its names in containers on it, and what opts adds. No site on the internet can take any of them:
// the domain internal is for private use.
func New(opts Options) *Hosts {
	names := map[string]bool{"localhost": true, "host.docker.internal": true, "host.containers.internal": true}
	h := &Hosts{names: names, suffixes: []string{".localhost"}, certified: opts.Certified, setting: opts.Setting,
		log: opts.Logger}
	if machine, err := os.Hostname(); err == nil {
		h.addMachine(machine)
	}
	for _, u := range opts.URLs {
		if u != nil {
			h.names[nameOf(u.Host)] = true
		}
	}
	for _, name := range append([]string{opts.Wildcard}, opts.Trusted...) {
		name = nameOf(name)
		if suffix, ok := strings.CutPrefix(name, "*"); ok && suffix != "" {
			h.suffixes = append(h.suffixes, suffix)
		} else if name != "" {
			h.names[name] = true
		}
	}
	return h
}

// addMachine adds the machine's name, its first part, and the name that multicast DNS gives it (RFC 6762).
func (h *Hosts) addMachine(name string) {
	name = nameOf(name)
	first, _, _ := strings.Cut(name, ".")
	if first == "" {
		return
	}
	h.names[name], h.names[first], h.names[first+".local"] = true, true, true
}

// Parse checks names that an operator gives: coder.internal, or *.internal for all names below a domain.
func Parse(setting string, names []string) ([]string, error) {
	for _, name := range names {
		rest := strings.TrimPrefix(name, "*.")
		if rest == "" || strings.Trim(strings.ToLower(rest), "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" ||
			strings.HasPrefix(rest, ".") {
			return nil, fault.New(fault.Invalid, "%s cannot contain %q", setting, name).
				WithDetail("It must be a name without scheme and port, like coder.internal or *.coder.internal.")
		}
	}
	return names, nil
}

// nameOf returns a host without its port, in lower case.
func nameOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// Has reports whether a request's host is one of the server's. The port does not count: a proxy may have another, and
// no page chooses it. Requests without a host come from programs only.
func (h *Hosts) Has(host string) bool {
	if host == "" {
		return true
	}
	name := nameOf(host)
	if h.names[name] {
		return true
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	for _, suffix := range h.suffixes {
		if rest, ok := strings.CutSuffix(name, suffix); ok && rest != "" {
			return true
		}
	}
	return h.certified != nil && h.certified(name)
}

// Handler passes on the requests for the server's hosts, and answers all others with 421 Misdirected Request (RFC 9110
// §15.5.20).
func (h *Hosts) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.Has(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		h.complain(r)
		detail := "Use the server's access URL. Its operator can allow the name with " + h.setting + "."
		if h.setting == "" {
			detail = "Use localhost or an address."
		}
		body, err := json.Marshal(map[string]string{
			"message": "This server does not answer to the host " + nameOf(r.Host) + ".", "detail": detail,
		})
		if err != nil {
			panic(err) // a map of strings
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusMisdirectedRequest)
		_, _ = w.Write(append(body, '\n')) // the client may have left
	})
}

func (h *Hosts) complain(r *http.Request) {
	if h.log == nil {
		return
	}
	h.mu.Lock()
	now := time.Now()
	quiet := now.Sub(h.complained) < complainEvery
	if !quiet {
		h.complained = now
	}
	h.mu.Unlock()
	if !quiet {
		h.log.Warn("refused a request for a foreign host", "host", r.Host, "addr", clientaddr.Of(r))
	}
}
