package workspaces

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func scheduleQuietHoursCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "quiet-hours [TIME [ZONE] | default]",
		Short: "Show or set when your quiet hours begin",
		Long: `Show or set when your quiet hours begin. A template can require running workspaces to stop on some days; they stop when your quiet hours
begin. Without a time zone it is this machine's. "default" returns to the deployment's quiet hours.`,
		Example: `  coder schedule quiet-hours
  coder schedule quiet-hours 22:00 Europe/Berlin`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			schedule, err := parseQuietHours(args, localZone())
			if err != nil {
				return err
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			var hours sdk.QuietHours
			if len(args) == 0 {
				hours, err = client.QuietHours(cmd.Context(), sdk.Me)
			} else {
				hours, err = client.UpdateQuietHours(cmd.Context(), sdk.Me, sdk.UpdateQuietHoursRequest{
					Schedule: schedule,
				})
			}
			if err != nil {
				return err
			}
			whose := "the deployment's default"
			if hours.UserSet {
				whose = "your setting"
			}
			fmt.Fprintf(g.Streams().Out, "Your quiet hours begin at %s (%s), %s.\n", hours.Time, hours.Timezone, whose)
			return nil
		},
	}
}

// parseQuietHours converts a time of day and a zone to a daily schedule; "" means the deployment's.
func parseQuietHours(words []string, zone string) (string, error) {
	if len(words) == 0 || len(words) == 1 && words[0] == "default" {
		return "", nil
	}
	if len(words) == 1 && strings.Contains(words[0], " ") {
		return words[0], nil
	}
	hour, minute, err := parseClock(words[0])
	if err != nil {
		return "", err
	}
	if len(words) == 2 {
		if !isZone(words[1]) {
			return "", fault.New(fault.Invalid, "%q is not a time zone like Europe/Berlin", words[1])
		}
		zone = words[1]
	}
	return fmt.Sprintf("CRON_TZ=%s %d %d * * *", zone, minute, hour), nil
}
