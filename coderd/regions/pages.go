package regions

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// hostForm is what may stand in a page's policy. A URL may contain more, such as a semicolon, which would end the
// directive.
var hostForm = lazyregexp.New(`^(?i:[a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]+)?$`)

// Pages serves the dashboard with a policy that lets its pages connect to the connected proxies that serve apps and
// terminals, and to no other host. next must not set a policy of its own.
func (s *Service) Pages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sources := s.sources.Load(); sources != nil && *sources != "" && !strings.HasPrefix(r.URL.Path, "/assets/") {
			const name, strict = "Content-Security-Policy", "connect-src 'self'"
			w.Header().Set(name, strings.Replace(w.Header().Get(name), strict, strict+*sources, 1))
			// A page that a browser has kept may have been sent with another policy.
			r = r.Clone(r.Context())
			r.Header.Del("If-None-Match")
		}
		next.ServeHTTP(w, r)
	})
}

// sourcesOf returns the sources of a policy that stand for addresses, each preceded by a space.
func sourcesOf(addresses []string) string {
	var b strings.Builder
	for _, address := range addresses {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !hostForm().MatchString(u.Host) {
			continue
		}
		b.WriteString(" " + u.Scheme + "://" + u.Host + " " + strings.Replace(u.Scheme, "http", "ws",
			1) + "://" + u.Host)
	}
	return b.String()
}
