package appproxy

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// Place is what an address names: an app or a port of an agent. All fields are in lower case.
type Place struct {
	Owner     string `json:"owner"`
	Workspace string `json:"workspace"`
	Agent     string `json:"agent"` // "" for the first one
	Slug      string `json:"slug"`  // of an app, or a port's number, followed by an s for TLS
}

const maxLabel = 63 // bytes of a name in a host (RFC 1035 §2.3.4)

var (
	nameForm = lazyregexp.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	slugForm = lazyregexp.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	portForm = lazyregexp.New(`^([0-9]{1,5})(s?)$`)
)

// Valid reports whether the place can exist.
func (p Place) Valid() bool {
	return nameForm().MatchString(p.Owner) && nameForm().MatchString(p.Workspace) && slugForm().MatchString(p.Slug) &&
		(p.Agent == "" || nameForm().MatchString(p.Agent))
}

// Port returns the port that the slug may mean.
func (p Place) Port() (port uint16, tls, ok bool) {
	m := portForm().FindStringSubmatch(p.Slug)
	if m == nil {
		return 0, false, false
	}
	n, err := strconv.ParseUint(m[1], 10, 16)
	return uint16(n), m[2] != "", err == nil && n > 0 && !strings.HasPrefix(m[1], "0")
}

// Label returns the place as the first part of a host. It may be too long for one.
func (p Place) Label() string {
	return strings.Join([]string{p.Slug, p.Agent, p.Workspace, p.Owner}, "--")
}

// parseLabel parses "slug--agent--workspace--owner". None of the four parts has two hyphens in a row.
func parseLabel(label string) (Place, bool) {
	parts := strings.Split(strings.ToLower(label), "--")
	if len(parts) != 4 || len(label) > maxLabel || parts[1] == "" {
		return Place{}, false
	}
	p := Place{Slug: parts[0], Agent: parts[1], Workspace: parts[2], Owner: parts[3]}
	return p, p.Valid()
}

// ParseWildcard checks a --wildcard-access-url: "*.apps.example.com", "*-apps.example.com", with or without a port, or
// as a URL. It returns the host with the asterisk.
func ParseWildcard(text string) (string, error) {
	host := text
	if _, rest, ok := strings.Cut(text, "://"); ok {
		host = strings.TrimSuffix(rest, "/")
	}
	name, port, hasPort := strings.Cut(host, ":")
	rest, ok := strings.CutPrefix(name, "*")
	if !ok || len(rest) < 2 || rest[0] != '.' && rest[0] != '-' || strings.ContainsAny(rest, "*/@?# ") ||
		hasPort && port == "" ||
		strings.Trim(port, "0123456789") != "" {
		return "", fault.New(fault.Invalid, "The wildcard access URL %q is invalid", text).
			WithDetail("It must look like *.apps.example.com.")
	}
	return strings.ToLower(host), nil
}

// Hosts maps the addresses of a deployment's apps to hosts and back. The zero value has no hosts.
type Hosts struct {
	scheme string
	access string // the host that is not for apps, without its port
	own    string // the same with its port
	suffix string // ".apps.example.com" or "-apps.example.com"; "" without a wildcard host
	port   string // including its colon; "" for the scheme's default
}

// NewHosts returns the addresses below a wildcard host, which may be empty. It panics if ParseWildcard refuses the
// wildcard host.
func NewHosts(accessURL *url.URL, wildcard string) Hosts {
	h := Hosts{scheme: accessURL.Scheme, access: strings.ToLower(accessURL.Hostname()),
		own: strings.ToLower(accessURL.Host)}
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

// label returns the part of a request's host that names an app, and whether the host is for apps at all. The
// dashboard's own host never is.
func (h Hosts) label(host string) (string, bool) {
	name, _, _ := strings.Cut(strings.ToLower(host), ":")
	name = strings.TrimSuffix(name, ".")
	if h.suffix == "" || name == h.access {
		return "", false
	}
	return strings.CutSuffix(name, h.suffix)
}

// Find returns the place that an address names, and whether it does so by path. ok is false unless the address is
// exactly one below these hosts: browsers are sent there with a code.
func (h Hosts) Find(u *url.URL) (p Place, byPath, ok bool) {
	if u.Scheme != h.scheme || u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return Place{}, false, false
	}
	if strings.EqualFold(u.Host, h.own) {
		at, ok := parsePath(u)
		return at.place, true, ok && at.place.Valid()
	}
	label, isApp := h.label(u.Host)
	p, ok = parseLabel(label)
	return p, false, ok && isApp && h.origin(label) == u.Scheme+"://"+strings.ToLower(u.Host)
}

// origin returns the address of an app's host.
func (h Hosts) origin(label string) string {
	return h.scheme + "://" + label + h.suffix + h.port
}

// PortURL returns the pattern of the URLs at which browsers reach an agent's ports, with "{{port}}" for the number. It
// is empty without a wildcard host, and if the host's name would be too long.
func (h Hosts) PortURL(owner, workspace, agent string) string {
	p := Place{Owner: strings.ToLower(owner), Workspace: strings.ToLower(workspace), Agent: strings.ToLower(agent),
		Slug: "65535"}
	if h.suffix == "" || !p.Valid() || len(p.Label()) > maxLabel {
		return ""
	}
	p.Slug = "{{port}}"
	return h.origin(p.Label())
}

// pathApp is an app addressed by path: /@owner/workspace[.agent]/apps/slug/rest.
type pathApp struct {
	place Place
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
		place: Place{Owner: strings.ToLower(at[1:]), Workspace: workspace, Agent: agent,
			Slug: strings.ToLower(parts[4])},
		base: strings.Join(parts[:5], "/"),
	}
	if len(parts) == 6 {
		p.slash, p.rest = true, parts[5]
	}
	if token, ok := strings.CutPrefix(p.rest, "~"); ok {
		p.token, p.rest, _ = strings.Cut(token, "/")
	}
	return p, true
}
