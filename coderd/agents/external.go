package agents

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/internal/appaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// scripting lists the schemes of addresses that a browser runs or shows in the name of the page that opens them, and
// those that lead to files on the visitor's machine. Every other scheme opens a website or a program: vscode:,
// jetbrains:, and many more.
var scripting = []string{"javascript", "data", "vbscript", "blob", "file", "filesystem", "about", "view-source", "jar"}

// CheckExternalURL returns what is wrong with an address that people open, "" if nothing is. Templates choose the
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
	if appaddr.NamesOption(text) {
		return "has a host or a user that programs would take for an option"
	}
	return ""
}

// CheckAddresses returns a fault for resources with an address that people open and CheckExternalURL refuses. Icons are
// no such addresses: they are only ever images. Neither are the addresses of other apps and of health checks, which the
// agent opens in the workspace. accessURL is the server's public URL: the only one that an address with a session token
// may name.
func CheckAddresses(resources []*provisionerpb.Resource, accessURL string) error {
	for _, r := range resources {
		for _, agent := range r.GetAgents() {
			if err := checkAddresses(agent, accessURL); err != nil {
				return err
			}
			for _, c := range agent.GetDevcontainers() {
				if err := checkAddresses(c.GetAgent(), accessURL); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func checkAddresses(agent *provisionerpb.Agent, accessURL string) error {
	if problem := CheckExternalURL(agent.GetTroubleshootingUrl()); problem != "" {
		return fault.New(fault.Invalid, "%sThe agent %q has an address that cannot be opened safely.", at(agent.GetPlace()), database.Text(agent.GetName())).
			WithDetail("The troubleshooting_url of the coder_agent %s.", problem)
	}
	for _, app := range agent.GetApps() {
		if problem := checkApp(app.GetUrl(), accessURL); app.GetExternal() && problem != "" {
			return fault.New(fault.Invalid, "%sThe app %q has an address that cannot be opened safely.", at(app.GetPlace()), database.Text(app.GetSlug())).
				WithDetail("The url of the coder_app %s.", problem)
		}
	}
	return nil
}

// checkApp returns what is wrong with the address of an external app, "" if nothing is.
func checkApp(text, accessURL string) string {
	if problem := CheckExternalURL(text); problem != "" {
		return problem
	}
	server, err := url.Parse(accessURL)
	if err != nil || appaddr.MisleadsToken(text, server) {
		return "would give the session of those who open it to another server: " + appaddr.TokenMark + " must be the value of a parameter, and the address in url the access URL"
	}
	return ""
}

// at returns the beginning of a message about a place in a template, "" for no place.
func at(place string) string {
	if place == "" {
		return ""
	}
	return database.Text(place) + ": "
}

// safeURL returns an address for the desktops of those who open it, and "" if it cannot be opened: only builds know
// some addresses, and earlier releases checked fewer.
func safeURL(text string) string {
	if CheckExternalURL(text) != "" {
		return ""
	}
	return appaddr.Escape(text)
}

// safeAppURL is like safeURL, for an external app.
func safeAppURL(text, accessURL string) string {
	if checkApp(text, accessURL) != "" {
		return ""
	}
	return safeURL(text)
}
