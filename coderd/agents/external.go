package agents

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

// scripting are the schemes of addresses that a browser runs or shows in the name of the page that opens them, and those that
// lead to files of the visitor's machine. Everything else opens a website or a program: vscode:, jetbrains:, and many more.
var scripting = []string{"javascript", "data", "vbscript", "blob", "file", "filesystem", "about", "view-source", "jar"}

// CheckExternalURL says what is wrong with the address of an external app, "" when nothing is. Templates choose it, and people
// click on it in the dashboard. An empty one is not known yet.
func CheckExternalURL(text string) string {
	if text == "" {
		return ""
	}
	// Browsers take tabs, line ends and spaces out before they look for a scheme.
	if strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar
	}) || strings.TrimSpace(text) != text {
		return "contains control characters, or begins or ends with a space"
	}
	scheme, _, found := strings.Cut(text, ":")
	if at := strings.IndexAny(text, "/?#"); !found || at >= 0 && at < len(scheme) {
		return "" // below the dashboard's own address
	}
	if u, err := url.Parse(strings.ToLower(scheme) + ":x"); err != nil || u.Scheme == "" {
		return "has no valid scheme"
	}
	if slices.Contains(scripting, strings.ToLower(scheme)) {
		return fmt.Sprintf("cannot begin with %s:", strings.ToLower(scheme))
	}
	return ""
}

// CheckExternalApps returns a fault for resources with an app whose address CheckExternalURL refuses.
func CheckExternalApps(resources []*provisionerpb.Resource) error {
	for _, r := range resources {
		for _, agent := range r.GetAgents() {
			for _, app := range agent.GetApps() {
				if problem := CheckExternalURL(app.GetUrl()); app.GetExternal() && problem != "" {
					return fault.New(fault.Invalid, "The app %q has an address that cannot be opened safely.", database.Text(app.GetSlug())).
						WithDetail("The url of the coder_app %s.", problem)
				}
			}
		}
	}
	return nil
}
