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

// scripting lists the schemes of addresses that a browser runs or shows in the name of the page that opens them, and those
// that lead to files on the visitor's machine. Every other scheme opens a website or a program: vscode:, jetbrains:, and
// many more.
var scripting = []string{"javascript", "data", "vbscript", "blob", "file", "filesystem", "about", "view-source", "jar"}

// CheckExternalURL returns what is wrong with the address of an external app, "" if nothing is. Templates choose the
// address, and people click on it in the dashboard. An empty address is not known yet.
func CheckExternalURL(text string) string {
	if text == "" {
		return ""
	}
	// Browsers remove tabs, line ends and spaces before they look for a scheme.
	if strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar
	}) || strings.TrimSpace(text) != text {
		return "contains control characters, or begins or ends with a space"
	}
	scheme, _, found := strings.Cut(text, ":")
	if at := strings.IndexAny(text, "/?#"); !found || at >= 0 && at < len(scheme) {
		return "" // relative to the dashboard's own address
	}
	if u, err := url.Parse(strings.ToLower(scheme) + ":x"); err != nil || u.Scheme == "" {
		return "has no valid scheme"
	}
	if slices.Contains(scripting, strings.ToLower(scheme)) {
		return fmt.Sprintf("cannot begin with %s:", strings.ToLower(scheme))
	}
	return ""
}

// CheckExternalApps returns a fault for resources with an app that has an address that CheckExternalURL refuses.
func CheckExternalApps(resources []*provisionerpb.Resource) error {
	for _, r := range resources {
		for _, agent := range r.GetAgents() {
			if err := checkExternalApps(agent); err != nil {
				return err
			}
			for _, c := range agent.GetDevcontainers() {
				if err := checkExternalApps(c.GetAgent()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func checkExternalApps(agent *provisionerpb.Agent) error {
	for _, app := range agent.GetApps() {
		if problem := CheckExternalURL(app.GetUrl()); app.GetExternal() && problem != "" {
			return fault.New(fault.Invalid, "The app %q has an address that cannot be opened safely.", database.Text(app.GetSlug())).
				WithDetail("The url of the coder_app %s.", problem)
		}
	}
	return nil
}
