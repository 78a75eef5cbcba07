package site

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// routes are the paths of the dashboard's pages, as in src/app.tsx: a test compares the two. A segment that begins with a colon matches any
// name.
var routes = []string{
	"/",
	"/login",
	"/login/device",
	"/reset-password",
	"/reset-password/change",
	"/setup",
	"/workspaces",
	"/@:owner/:name",
	"/@:owner/:name/builds/:build",
	"/@:owner/:name/settings",
	terminalRoute,
	"/templates",
	"/templates/new",
	"/templates/:template",
	"/templates/:template/:tab",
	"/templates/:template/workspace",
	"/templates/:template/versions/:version",
	"/templates/:template/versions/:version/edit",
	"/templates/:organization/:template/workspace",
	"/provisioners",
	"/users",
	"/organizations",
	"/organizations/new",
	"/organizations/:organization",
	"/organizations/:organization/:tab",
	"/organizations/:organization/groups/:group",
	"/organizations/:organization/roles/:role",
	"/groups",
	"/groups/:group",
	"/audit",
	"/connectionlog",
	"/account",
	"/notifications",
	"/deployment",
	"/deployment/idp-org-sync",
	"/deployment/appearance",
	"/deployment/settings",
	"/deployment/notifications",
	"/deployment/webhooks",
	"/deployment/regions",
	"/external-auth/:id",
	"/health",
	"/mesh",
	"/downloads",
	"/docs",
	"/docs/:page",
	"/docs/decisions/:page",
	"/cli-auth",
	"/cli-auth/code",
}

// terminalRoute is the page of a terminal, which may use more styles than the others (see allowStyles).
const terminalRoute = "/@:owner/:name/terminal"

// IsPage reports whether the dashboard has a page at an escaped path: a name in it can contain a slash. The server answers other
// paths with 404: a program that requests /metrics, /install.sh or another server's API would take a page for the answer.
func IsPage(p string) bool {
	return slices.ContainsFunc(routes, func(route string) bool { return matches(route, p) })
}

// matches reports whether a path belongs to a route.
func matches(route, p string) bool {
	segments := strings.Split(strings.Trim(path.Clean("/"+p), "/"), "/")
	pattern := strings.Split(strings.Trim(route, "/"), "/")
	return len(pattern) == len(segments) && !slices.ContainsFunc(zip(pattern, segments), func(pair [2]string) bool { return !fits(pair[0], pair[1]) })
}

func zip(a, b []string) [][2]string {
	out := make([][2]string, len(a))
	for i := range a {
		out[i] = [2]string{a[i], b[i]}
	}
	return out
}

// fits reports whether a path's segment matches the pattern's.
func fits(pattern, segment string) bool {
	prefix, name, variable := strings.Cut(pattern, ":")
	if !variable || name == "" {
		return pattern == segment
	}
	return strings.HasPrefix(segment, prefix) && len(segment) > len(prefix)
}

// wantsPage reports whether a browser navigates to an address, rather than a program or a page's script requesting data.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// noSuchPath answers a program, in the form of the API's errors.
func noSuchPath(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNotFound)
	if r.Method == http.MethodHead {
		return
	}
	shown := url.URL{Path: r.URL.Path}
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(map[string]string{"message": shown.EscapedPath() + " does not exist on this server."})
}
