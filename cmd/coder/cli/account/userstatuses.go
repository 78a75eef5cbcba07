package account

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxStatusDays is how many days the server reports.
const maxStatusDays = 60

// statusDay is how many users had each status at the end of a day.
type statusDay struct {
	Date      string `json:"date"` // 2026-11-23
	Active    int64  `json:"active"`
	Dormant   int64  `json:"dormant"`
	Suspended int64  `json:"suspended"`
}

func userStatusCountsCmd(g *global.Flags) *cobra.Command {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	out := output.List[statusDay]{Columns: []output.Column[statusDay]{
		output.Col("date", func(d statusDay) string { return d.Date }),
		output.Col("active", func(d statusDay) string { return number(d.Active) }),
		output.Col("dormant", func(d statusDay) string { return number(d.Dormant) }),
		output.Col("suspended", func(d statusDay) string { return number(d.Suspended) }),
	}}
	var days int
	var zone string
	cmd := &cobra.Command{
		Use:   "status-counts",
		Short: "Count the users by status on each of the last days",
		Long:  `Count the users who were active, dormant and suspended at the end of each of the last days, and who are now. Requires the role Owner.`,
		Example: `  coder users status-counts
  coder users status-counts --days 60 --timezone Europe/Berlin -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if days < 1 || days > maxStatusDays {
				return exit.Try(fault.New(fault.Invalid, "--days cannot be %d: the report has 1 to %d days", days,
					maxStatusDays), "coder users status-counts --days %d", maxStatusDays)
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			got, err := client.UserStatusCounts(cmd.Context(), zone)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, statusDaysOf(got, days))
		},
	}
	out.Flags(cmd)
	cmd.Flags().IntVar(&days, "days", 14, "number of days, today included, 60 at most")
	cmd.Flags().StringVar(&zone, "timezone", "UTC", "time zone in which days begin, such as Europe/Berlin")
	return cmd
}

// statusDaysOf returns the last days of a report.
func statusDaysOf(report sdk.UserStatusCountsResponse, most int) []statusDay {
	var all []statusDay
	for i, entry := range report.StatusCounts[string(sdk.UserActive)] {
		count := func(status sdk.UserStatus) int64 {
			if list := report.StatusCounts[string(status)]; i < len(list) {
				return list[i].Count
			}
			return 0
		}
		all = append(all, statusDay{
			Date: entry.Date.Format(time.DateOnly), Active: entry.Count, Dormant: count(sdk.UserDormant),
			Suspended: count(sdk.UserSuspended),
		})
	}
	return all[max(0, len(all)-most):]
}
