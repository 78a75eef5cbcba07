package templates

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

// allDays lists the days on which every template allows autostart. The list is spelled out because clients that manage
// templates send all seven by default, and compare them with the answer.
var allDays = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// corsSimple means that the server answers an app's preflight requests.
const corsSimple = "simple"

// checkFixed refuses settings that exist in the API and have only one value here. If the server accepted and dropped such a
// setting, users would believe that it works: that a template is private, or that a failed workspace is stopped.
func checkFixed(f sdk.FixedTemplateSettings, bump *int64, autostart, autostop, cancel *bool) error {
	refused := fault.New(fault.Invalid, "This server does not support these template settings.")
	isFixed(refused, "activity_bump_ms", bump, activityBump.Milliseconds())
	isFixed(refused, "allow_user_autostart", autostart, true)
	isFixed(refused, "allow_user_autostop", autostop, true)
	isFixed(refused, "allow_user_cancel_workspace_jobs", cancel, true)
	isFixed(refused, "failure_ttl_ms", f.FailureTTLMillis, 0)
	isFixed(refused, "dormant_ttl_ms", f.DormantTTLMillis, 0)
	isFixed(refused, "time_til_dormant_ms", f.TimeTilDormantMillis, 0)
	isFixed(refused, "delete_ttl_ms", f.DeleteTTLMillis, 0)
	isFixed(refused, "time_til_dormant_autodelete_ms", f.TimeTilDormantDeleteMillis, 0)
	isFixed(refused, "disable_everyone_group_access", f.DisableEveryoneGroupAccess, false)
	isFixed(refused, "max_port_share_level", f.MaxPortShareLevel, sdk.ShareOwner, "")
	isFixed(refused, "cors_behavior", f.CORSBehavior, corsSimple, "")
	isFixed(refused, "use_classic_parameter_flow", f.UseClassicParameterFlow, true)
	isFixed(refused, "template_use_classic_parameter_flow", f.ClassicParameterFlow, true)
	isFixed(refused, "update_workspace_last_used_at", f.UpdateWorkspaceLastUsedAt, false)
	isFixed(refused, "update_workspace_dormant_at", f.UpdateWorkspaceDormantAt, false)
	isFixed(refused, "disable_module_cache", f.DisableModuleCache, false)
	if r := f.AutostopRequirement; r != nil && (len(r.DaysOfWeek) > 0 || r.Weeks != 0 && r.Weeks != 1) {
		refused.WithField("autostop_requirement", "cannot require days: days_of_week is empty, weeks is 1")
	}
	// null leaves the days unchanged; an empty list would allow none.
	if r := f.AutostartRequirement; r != nil && r.DaysOfWeek != nil && !sameDays(r.DaysOfWeek) {
		refused.WithField("autostart_requirement", "cannot restrict days: days_of_week names all seven")
	}
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

// sameDays reports whether days contains all seven, in any order.
func sameDays(days []string) bool {
	given := map[string]bool{}
	for _, day := range days {
		given[strings.ToLower(day)] = true
	}
	return len(given) == len(allDays) && !slices.ContainsFunc(allDays, func(day string) bool { return !given[day] })
}
