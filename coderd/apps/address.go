package apps

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// place is what an address names: an app or a port of an agent. All fields are in lower case.
type place struct {
	owner, workspace string
	agent            string // "" for the first one
	slug             string // of an app, or a port's number, followed by an s for TLS
}

const maxLabel = 63 // bytes of a name in a host (RFC 1035 §2.3.4)

var (
	nameForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	slugForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	portForm = regexp.MustCompile(`^([0-9]{1,5})(s?)$`)
)

func (p place) valid() bool {
	return nameForm.MatchString(p.owner) && nameForm.MatchString(p.workspace) && slugForm.MatchString(p.slug) &&
		(p.agent == "" || nameForm.MatchString(p.agent))
}

// port returns the port that the slug may mean.
func (p place) port() (port uint16, tls, ok bool) {
	m := portForm.FindStringSubmatch(p.slug)
	if m == nil {
		return 0, false, false
	}
	n, err := strconv.ParseUint(m[1], 10, 16)
	return uint16(n), m[2] != "", err == nil && n > 0 && !strings.HasPrefix(m[1], "0")
}

// label returns the place as the first part of a host. It may be too long for one.
func (p place) label() string {
	return strings.Join([]string{p.slug, p.agent, p.workspace, p.owner}, "--")
}

// parseLabel parses "slug--agent--workspace--owner". None of the four parts has two hyphens in a row.
func parseLabel(label string) (place, bool) {
	parts := strings.Split(strings.ToLower(label), "--")
	if len(parts) != 4 || len(label) > maxLabel || parts[1] == "" {
		return place{}, false
	}
	p := place{slug: parts[0], agent: parts[1], workspace: parts[2], owner: parts[3]}
	return p, p.valid()
}

// Hosts maps the addresses of a deployment's apps to hosts and back. The zero value has no hosts.
type Hosts struct {
	scheme string
	access string // the dashboard's own host
	suffix string // ".apps.example.com" or "-apps.example.com"; "" without a wildcard host
	port   string // including its colon; "" for the scheme's default
}

// NewHosts returns the addresses below a wildcard host, which may be empty. It panics if ParseWildcard refuses the wildcard
// host.
func NewHosts(accessURL *url.URL, wildcard string) Hosts {
	h := Hosts{scheme: accessURL.Scheme, access: strings.ToLower(accessURL.Hostname())}
	if wildcard == "" {
		return h
	}
	host, err := ParseWildcard(wildcard)
	if err != nil {
		panic(err)
	}
	name, port, hasPort := strings.Cut(host, ":")
	h.suffix = strings.TrimPrefix(name, "*")
	if hasPort {
		h.port = ":" + port
	}
	return h
}

// label returns the part of a request's host that names an app, and whether the host is for apps at all. The dashboard's own
// host never is.
func (h Hosts) label(host string) (string, bool) {
	name, _, _ := strings.Cut(strings.ToLower(host), ":")
	name = strings.TrimSuffix(name, ".")
	if h.suffix == "" || name == h.access {
		return "", false
	}
	return strings.CutSuffix(name, h.suffix)
}

// origin returns the address of an app's host.
func (h Hosts) origin(label string) string {
	return h.scheme + "://" + label + h.suffix + h.port
}

// PortURL returns the pattern of the URLs at which browsers reach an agent's ports, with "{{port}}" for the number. It is
// empty without a wildcard host, and if the host's name would be too long.
func (h Hosts) PortURL(owner, workspace, agent string) string {
	p := place{owner: strings.ToLower(owner), workspace: strings.ToLower(workspace), agent: strings.ToLower(agent), slug: "65535"}
	if h.suffix == "" || !p.valid() || len(p.label()) > maxLabel {
		return ""
	}
	p.slug = "{{port}}"
	return h.origin(p.label())
}

// pathApp is an app addressed by path: /@owner/workspace[.agent]/apps/slug/rest.
type pathApp struct {
	place
	base  string // "/@owner/workspace.agent/apps/slug" as it was written
	slash bool   // something follows the slug
	token string // from "~token/" before the rest
	rest  string // escaped, without the leading slash
}

// parsePath reports whether a path is an app's, valid or not. Paths of the form "/@…/…/apps/…" have no other use.
func parsePath(u *url.URL) (pathApp, bool) {
	parts := strings.SplitN(u.EscapedPath(), "/", 6)
	if len(parts) < 5 || parts[3] != "apps" {
		return pathApp{}, false
	}
	at, err := url.PathUnescape(parts[1])
	if err != nil || !strings.HasPrefix(at, "@") {
		return pathApp{}, false
	}
	workspace, agent, _ := strings.Cut(strings.ToLower(parts[2]), ".")
	p := pathApp{
		place: place{owner: strings.ToLower(at[1:]), workspace: workspace, agent: agent, slug: strings.ToLower(parts[4])},
		base:  strings.Join(parts[:5], "/"),
	}
	if len(parts) == 6 {
		p.slash, p.rest = true, parts[5]
	}
	if token, ok := strings.CutPrefix(p.rest, "~"); ok {
		p.token, p.rest, _ = strings.Cut(token, "/")
	}
	return p, true
}
