package terraform

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/provisionerd/terraform/template"
)

// checkSupport returns a fault if the plan has an agent that could never connect, and logs a warning for each thing that this server
// ignores.
func (r *runner) checkSupport(t *template.Source, p planned) error {
	ignored := slices.Clone(t.Ignored)
	for _, n := range p.resources {
		if n.typ == "coder_agent" {
			var attrs struct {
				OS   string `json:"os"`
				Auth string `json:"auth"`
			}
			if err := json.Unmarshal(n.attrs, &attrs); err != nil {
				return fmt.Errorf("read %s: %w", n.address(), err)
			}
			if err := template.CheckAgent(t.Place(n.address()), n.address(), attrs.OS, attrs.Auth); err != nil {
				return err
			}
		}
		if n.module != "" && slices.Contains(template.Without, n.typ) {
			ignored = append(ignored, template.Ignored(t.Place(n.address()), n.typ))
		}
	}
	for _, n := range p.data {
		if n.module != "" && slices.Contains(template.Without, "data."+n.typ) {
			ignored = append(ignored, template.Ignored(t.Place(n.address()), "data."+n.typ))
		}
	}
	slices.Sort(ignored)
	for _, line := range slices.Compact(ignored) {
		r.log.say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s", line)
	}
	return nil
}
