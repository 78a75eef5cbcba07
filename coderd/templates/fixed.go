package templates

import (
	"fmt"
	"slices"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// corsSimple means that the server answers an app's preflight requests.
const corsSimple = "simple"

// checkFixed refuses settings that exist in the API and have only one value here. If the server accepted and dropped
// such a setting, users would believe that it works: that requests from other sites are answered.
func checkFixed(f sdk.FixedTemplateSettings) error {
	refused := fault.New(fault.Invalid, "This server does not support these template settings.")
	if level := f.MaxPortShareLevel; level != nil && *level != "" && !slices.Contains(sdk.PortShareLevels, *level) {
		refused.WithField("max_port_share_level", "must be owner, organization, authenticated or public")
	}
	isFixed(refused, "cors_behavior", f.CORSBehavior, corsSimple, "")
	isFixed(refused, "use_classic_parameter_flow", f.UseClassicParameterFlow, true)
	isFixed(refused, "template_use_classic_parameter_flow", f.ClassicParameterFlow, true)
	isFixed(refused, "disable_module_cache", f.DisableModuleCache, false)
	if len(refused.Fields) > 0 {
		return refused
	}
	return nil
}

// isFixed refuses every value except the fixed one and the others, which mean the same.
func isFixed[T comparable](refused *fault.Error, field string, value *T, fixed T, others ...T) {
	if value != nil && *value != fixed && !slices.Contains(others, *value) {
		refused.WithField(field, fmt.Sprintf("is always %v", fixed))
	}
}
