package templates

import (
	"encoding/json"
	"testing"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestPolicyFlags checks that each flag changes its setting only, with the other half of a setting of two kept.
func TestPolicyFlags(t *testing.T) {
	t.Parallel()
	template := sdk.Template{AutostopRequirement: sdk.AutostopRequirement{DaysOfWeek: []string{"sunday"}, Weeks: 3}}
	for _, c := range []struct{ flag, value, want string }{
		{"max-ttl", "24h", `{"max_ttl_ms":86400000}`},
		{"activity-bump", "0", `{"activity_bump_ms":0}`},
		{"autostop-notice", "15m", `{"time_til_autostop_notify_ms":900000}`},
		{"failure-ttl", "1h", `{"failure_ttl_ms":3600000}`},
		{"dormancy-threshold", "30d", `{"time_til_dormant_ms":2592000000}`},
		{"dormancy-auto-deletion", "48h", `{"time_til_dormant_autodelete_ms":172800000}`},
		{"autostart-requirement-weekdays", "Monday,friday", `{"autostart_requirement":{"days_of_week":["monday","friday"]}}`},
		{"autostart-requirement-weekdays", "none", `{"autostart_requirement":{"days_of_week":[]}}`},
		{"autostop-requirement-weekdays", "none", `{"autostop_requirement":{"days_of_week":[],"weeks":3}}`},
		{"autostop-requirement-weeks", "2", `{"autostop_requirement":{"days_of_week":["sunday"],"weeks":2}}`},
		{"allow-user-autostart", "false", `{"allow_user_autostart":false}`},
		{"allow-user-autostop", "true", `{"allow_user_autostop":true}`},
		{"allow-user-cancel-workspace-jobs", "false", `{"allow_user_cancel_workspace_jobs":false}`},
		{"allow-replacing-resources", "true", `{"allow_replacing_resources":true}`},
		{"update-workspace-last-used-at", "true", `{"update_workspace_last_used_at":true}`},
		{"update-workspace-dormant-at", "true", `{"update_workspace_dormant_at":true}`},
	} {
		var o policyOptions
		f := pflag.NewFlagSet("edit", pflag.ContinueOnError)
		o.flags(f)
		if err := f.Set(c.flag, c.value); err != nil {
			t.Errorf("--%s %s: %v", c.flag, c.value, err)
			continue
		}
		var req sdk.UpdateTemplateRequest
		o.apply(f.Changed, template, &req)
		if got, err := json.Marshal(req); err != nil || string(got) != c.want {
			t.Errorf("--%s %s: %s, %v, want %s", c.flag, c.value, got, err, c.want)
		}
	}
}
