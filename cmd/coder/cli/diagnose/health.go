package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func healthCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Show the server's health checks, and dismiss those whose findings are accepted",
		Long: `Show the checks that the server makes of itself, and dismiss those whose findings are accepted: such a check still
runs, but counts neither for the report's severity nor for its "healthy". Requires the role Owner.`,
		Example: `  coder health show
  coder health dismiss relay
  coder health undismiss relay`,
	}
	cmd.AddCommand(healthShowCmd(g), healthDismissCmd(g), healthUndismissCmd(g))
	return cmd
}

func healthShowCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.HealthSection]{Columns: []output.Column[sdk.HealthSection]{
		output.Col("check", func(s sdk.HealthSection) string { return s.Name }),
		output.Col("severity", func(s sdk.HealthSection) string { return string(s.Severity) }),
		output.Col("dismissed", func(s sdk.HealthSection) string { return strconv.FormatBool(s.Dismissed) }),
		output.Col("code", func(s sdk.HealthSection) string { return s.Code }),
		output.Col("message", func(s sdk.HealthSection) string { return s.Message }),
		output.Col("remedy", func(s sdk.HealthSection) string { return s.Remedy }),
	}, Initial: []string{"check", "severity", "dismissed", "message"}}
	cmd := &cobra.Command{
		Use: "show", Short: "Show the server's health checks and what they found",
		Long: `Show the server's health checks and what they found, and for which builds a server waits that is stopping. With
--output json, the whole report is printed.`,
		Example: `  coder health show --column check,severity,code,remedy
  coder health show -o json | jq -e .healthy`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			report, err := client.Health(cmd.Context())
			if err != nil {
				return err
			}
			if out.Format == "json" {
				return output.JSON(g.Streams().Out, report)
			}
			if err := out.Print(g.Streams().Out, report.Sections); err != nil {
				return err
			}
			for _, server := range report.Servers {
				if server.Stopping {
					fmt.Fprintln(g.Streams().Err, stopping(server, time.Now()))
				}
			}
			return nil
		},
	}
	out.Flags(cmd)
	return cmd
}

// stopping says for what a server waits before it ends.
func stopping(server sdk.ServerHealth, now time.Time) string {
	if len(server.Awaits) == 0 {
		return fmt.Sprintf("The server %s is stopping. It waits for no build.", server.Name)
	}
	jobs := make([]string, len(server.Awaits))
	for i, job := range server.Awaits {
		what := strings.TrimSpace(strings.ReplaceAll(string(job.Type), "_", " ") + " " + job.Template)
		if job.Workspace != "" {
			what = fmt.Sprintf("the %s of %s/%s", job.Transition, job.Owner, job.Workspace)
		}
		left := max(0, job.InterruptedAt.Sub(now).Round(time.Second))
		jobs[i] = fmt.Sprintf("%s (begun by %s, interrupted in %s)", what, job.Initiator, left)
	}
	return fmt.Sprintf("The server %s is stopping. It waits for %s.", server.Name, strings.Join(jobs, ", "))
}

func healthDismissCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "dismiss CHECK...", Short: "Dismiss health checks whose findings are accepted",
		Long: `Dismiss health checks whose findings are accepted. The checks still run, and are still listed, but do not make the
server unhealthy. ` + checksHelp(),
		Example: `  coder health dismiss relay
  coder health dismiss DERP WorkspaceProxy`,
		Args: checkArgs, ValidArgs: checks(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeDismissed(g, cmd, sdk.PatchHealthSettingsRequest{Dismiss: settingNames(args)})
		},
	}
}

func healthUndismissCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "undismiss CHECK...", Short: "Let dismissed health checks count again",
		Long:    "Let dismissed health checks count again. " + checksHelp(),
		Example: `  coder health undismiss relay`,
		Args:    checkArgs, ValidArgs: checks(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeDismissed(g, cmd, sdk.PatchHealthSettingsRequest{Undismiss: settingNames(args)})
		},
	}
}

// changeDismissed changes which checks are dismissed, and says what they are then.
func changeDismissed(g *global.Flags, cmd *cobra.Command, change sdk.PatchHealthSettingsRequest) error {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return err
	}
	settings, err := client.PatchHealthSettings(cmd.Context(), change)
	if err != nil {
		return err
	}
	now := "No health check is dismissed."
	if names := settings.DismissedHealthchecks; len(names) > 0 {
		now = "Dismissed health checks: " + strings.Join(names, ", ") + "."
	}
	_, err = fmt.Fprintln(g.Streams().Err, now)
	return err
}

// checks returns the names of the checks, as the report has them.
func checks() []string { return slices.Sorted(maps.Keys(sdk.HealthChecks)) }

func checksHelp() string { return "The checks are " + strings.Join(checks(), ", ") + "." }

// checkArgs refuses the names of checks that do not exist. The names that other programs for this API use are right
// too.
func checkArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exit.Try(fault.New(fault.Invalid, "the check's name is missing"), "%s", cmd.UseLine())
	}
	for _, arg := range args {
		if settingName(arg) == "" {
			return exit.Try(fault.New(fault.Invalid, "there is no health check %q", arg), "coder health show")
		}
	}
	return nil
}

// settingName returns the name that a check has in the settings, or "" for one that does not exist.
func settingName(check string) string {
	for section, name := range sdk.HealthChecks {
		if strings.EqualFold(check, section) || strings.EqualFold(check, name) {
			return name
		}
	}
	return ""
}

func settingNames(checks []string) []string {
	names := make([]string, len(checks))
	for i, check := range checks {
		names[i] = settingName(check)
	}
	return names
}
