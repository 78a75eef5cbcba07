package templates

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// policyOptions are the flags of a template's schedule, dormancy and clean-up.
type policyOptions struct {
	maxTTL, bump, notify, failure, dormancy, deletion flags.Days
	autostart, autostop                               []string
	weeks                                             int64
	allowAutostart, allowAutostop, allowCancel        bool
	allowReplacing                                    bool
	restartUse, restartDormancy                       bool
}

var everyDay = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

func (o *policyOptions) flags(f *pflag.FlagSet) {
	f.Var(&o.maxTTL, "max-ttl", "longest time after each start until workspaces stop, such as 24h; 0 means no maximum")
	f.Var(&o.bump, "activity-bump",
		"how much longer a workspace in use runs, such as 1h; 0 means that use does not postpone the stop")
	f.Var(&o.notify, "autostop-notice", "how long before a stop users are told, such as 30m; 0 means never")
	f.Var(&o.failure, "failure-ttl",
		"time after a failed start until the workspace is stopped, such as 1h; 0 means never")
	f.Var(&o.dormancy, "dormancy-threshold",
		"time without use until a workspace becomes dormant, such as 30d; 0 means never")
	f.Var(&o.deletion, "dormancy-auto-deletion",
		"time until a dormant workspace is deleted, such as 60d; 0 means never")
	f.StringSliceVar(&o.autostart, "autostart-requirement-weekdays", nil, `days on which schedules start workspaces, such as monday,friday; "all" or "none"`)
	f.StringSliceVar(&o.autostop, "autostop-requirement-weekdays", nil, `days on which workspaces stop when their owner's quiet hours begin; "all" or "none"`)
	f.Int64Var(&o.weeks, "autostop-requirement-weeks", 1, "number of weeks from one required stop to the next, 1 to 16")
	f.BoolVar(&o.allowAutostart, "allow-user-autostart", true, "let users schedule automatic starts")
	f.BoolVar(&o.allowAutostop, "allow-user-autostop", true, "let users change when workspaces stop")
	f.BoolVar(&o.allowCancel, "allow-user-cancel-workspace-jobs", true, "let users cancel builds")
	f.BoolVar(&o.allowReplacing, "allow-replacing-resources", false, "let starts and stops without a question, such as automatic ones, replace disks and other resources that workspaces keep while they are stopped; their data is lost")
	f.BoolVar(&o.restartUse, "update-workspace-last-used-at", false,
		"reset last-used times, so that a new dormancy threshold counts from now")
	f.BoolVar(&o.restartDormancy, "update-workspace-dormant-at", false,
		"count dormant workspaces as dormant since now, to spare them from a new deletion time")
}

// days replaces the words for all days and none.
func days(given []string) []string {
	switch {
	case slices.Equal(given, []string{"all"}):
		return everyDay
	case slices.Equal(given, []string{"none"}), slices.Equal(given, []string{""}):
		return []string{}
	}
	out := make([]string, len(given))
	for i, day := range given {
		out[i] = strings.ToLower(strings.TrimSpace(day))
	}
	return out
}

// apply sets what the given flags name, and leaves the rest of the template t as it is.
func (o *policyOptions) apply(given func(flag string) bool, t sdk.Template, req *sdk.UpdateTemplateRequest) {
	for flag, field := range map[string]struct {
		into **int64
		from flags.Days
	}{
		"max-ttl": {&req.MaxTTLMillis, o.maxTTL}, "activity-bump": {&req.ActivityBumpMillis, o.bump}, "autostop-notice": {&req.AutostopNotifyMillis, o.notify},
		"failure-ttl": {&req.FailureTTLMillis, o.failure}, "dormancy-threshold": {&req.TimeTilDormantMillis, o.dormancy},
		"dormancy-auto-deletion": {&req.TimeTilDormantDeleteMillis, o.deletion},
	} {
		if given(flag) {
			ms := time.Duration(field.from).Milliseconds()
			*field.into = &ms
		}
	}
	for flag, field := range map[string]struct {
		into **bool
		from *bool
	}{
		"allow-user-autostart": {&req.AllowUserAutostart, &o.allowAutostart}, "allow-user-autostop": {&req.AllowUserAutostop, &o.allowAutostop},
		"allow-user-cancel-workspace-jobs": {&req.AllowUserCancelWorkspaceJobs, &o.allowCancel},
		"allow-replacing-resources":        {&req.AllowReplacingResources, &o.allowReplacing},
		"update-workspace-last-used-at":    {&req.UpdateWorkspaceLastUsedAt, &o.restartUse}, "update-workspace-dormant-at": {&req.UpdateWorkspaceDormantAt, &o.restartDormancy},
	} {
		if given(flag) {
			*field.into = field.from
		}
	}
	if given("autostart-requirement-weekdays") {
		req.AutostartRequirement = &sdk.AutostartRequirement{DaysOfWeek: days(o.autostart)}
	}
	byDays, byWeeks := given("autostop-requirement-weekdays"), given("autostop-requirement-weeks")
	if byDays || byWeeks {
		r := t.AutostopRequirement // the server replaces both
		if byDays {
			r.DaysOfWeek = days(o.autostop)
		}
		if byWeeks {
			r.Weeks = o.weeks
		}
		req.AutostopRequirement = &r
	}
}
