package result

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// maxLabel is how many bytes a label of a host name may have: RFC 1035, section 2.3.4.
const maxLabel = 63

// appLabel is the first label of an app's own host name.
func appLabel(app *provisionerpb.App, agent, workspace, owner string) string {
	return strings.Join([]string{app.GetSlug(), agent, workspace, owner}, "--")
}

// CheckSlugs returns a fault if two apps of a planned template have one slug.
func CheckSlugs(t *template.Source, resources []Node) error {
	places := map[string]string{}
	for _, n := range resources {
		var app struct {
			Slug string `json:"slug"`
		}
		if n.typ != "coder_app" || json.Unmarshal(n.attrs, &app) != nil || app.Slug == "" {
			continue // a build knows it
		}
		place := t.Place(n.address())
		if other, taken := places[app.Slug]; taken {
			return fault.New(fault.Invalid,
				"%s: the app %s has the slug %q of the app at %s: apps of one template need different slugs", place,
				n.address(), app.Slug, other)
		}
		places[app.Slug] = place
	}
	return nil
}

// CheckLabels returns a fault if an app of its own host can have none, however short the names of the workspace and its
// owner are.
func CheckLabels(resources []*provisionerpb.Resource) error {
	for agent := range agentsOf(resources) {
		for _, app := range agent.GetApps() {
			if n := len(appLabel(app, agent.GetName(), "w", "o")); app.GetSubdomain() && n > maxLabel {
				return fault.New(fault.Invalid,
					"%s: the app %q cannot have a host of its own: the names of app and agent have %d bytes, and %d "+
						"are possible. Shorten them, or use subdomain = false",
					app.GetPlace(), app.GetSlug(), len(app.GetSlug())+len(agent.GetName()), maxLabel-len("----w--o"))
			}
		}
	}
	return nil
}

// AppWarnings returns, as lines for the log, which apps of a started workspace cannot be opened.
func AppWarnings(resources []*provisionerpb.Resource, m *provisionerpb.Metadata) (lines []string) {
	for agent := range agentsOf(resources) {
		places := map[string]string{}
		for _, app := range agent.GetApps() {
			if other, taken := places[app.GetSlug()]; taken {
				lines = append(lines, fmt.Sprintf("%s: the app %q is not shown: it has the slug of the app at %s",
					app.GetPlace(), app.GetSlug(), other))
				continue
			}
			places[app.GetSlug()] = app.GetPlace()
			if label := appLabel(app, agent.GetName(), m.GetWorkspaceName(), m.GetOwnerName()); app.GetSubdomain() &&
				len(label) > maxLabel {
				lines = append(lines,
					fmt.Sprintf("%s: the app %q cannot be opened: the first part of its host name, %s, has %d bytes, "+
						"and %d are possible. Use a shorter slug, or subdomain = false",
						app.GetPlace(), app.GetSlug(), label, len(label), maxLabel))
			}
		}
	}
	return lines
}

// agentsOf yields the agents of resources, those in dev containers too.
func agentsOf(resources []*provisionerpb.Resource) func(yield func(*provisionerpb.Agent) bool) {
	return func(yield func(*provisionerpb.Agent) bool) {
		for _, r := range resources {
			for _, a := range r.GetAgents() {
				if !yield(a) {
					return
				}
				for _, c := range a.GetDevcontainers() {
					if !yield(c.GetAgent()) {
						return
					}
				}
			}
		}
	}
}
