package workspaces

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

func scheduleCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schedule",
		Short:   "Schedule automatic start and stop",
		Example: "  coder schedule start dev 9:30 Mon-Fri Europe/Berlin\n  coder schedule stop dev 8h",
	}
	cmd.AddCommand(scheduleShowCmd(g), scheduleStartCmd(g), scheduleStopCmd(g), scheduleExtendCmd(g),
		scheduleQuietHoursCmd(g))
	return cmd
}

func scheduleShowCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.Workspace]{Columns: []output.Column[sdk.Workspace]{
		output.Col("workspace", sdk.Workspace.FullName),
		output.Col("starts at", func(ws sdk.Workspace) string { return startsAt(ws.AutostartSchedule) }),
		output.Col("starts next", startsNext),
		output.Col("stops after", stopsAfter),
		output.Col("stops at", stopsAt),
		output.Col("stops next", stopsAt),
	}, Initial: []string{"workspace", "starts at", "starts next", "stops after", "stops at"},
		JSON: func(ws sdk.Workspace) any { return newScheduleJSON(ws) }}
	var all bool
	var search string
	cmd := &cobra.Command{
		Use:   "show [WORKSPACE]",
		Short: "Show when workspaces start and stop",
		Long:  `Show when a workspace starts and stops. With --all or --search it lists several.`,
		Example: `  coder schedule show dev
  coder schedule show --search status:running`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if several := all || search != ""; several == (len(args) == 1) {
				return exit.Try(fault.New(fault.Invalid, "give either a workspace, or --all or --search"),
					"coder schedule show WORKSPACE")
			}
			if len(args) == 0 {
				return listSchedules(cmd.Context(), g, out, search)
			}
			_, ws, err := find(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			if err := out.Print(g.Streams().Out, []sdk.Workspace{ws}); err != nil || out.Format != "table" {
				return err
			}
			printConsequences(g.Streams().Err, ws)
			return nil
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "show all workspaces that you may see")
	cmd.Flags().StringVar(&search, "search", "", "show the workspaces that a search finds, such as owner:me")
	out.Flags(cmd)
	return cmd
}

// scheduleJSON is a workspace with what the table shows, under the names of Coder's command line. Each is "" if there
// is none.
type scheduleJSON struct {
	sdk.Workspace
	FullName   string `json:"workspace"`
	StartsAt   string `json:"starts_at"`
	StartsNext string `json:"starts_next"`
	StopsAfter string `json:"stops_after"`
	StopsNext  string `json:"stops_next"`
}

func newScheduleJSON(ws sdk.Workspace) scheduleJSON {
	some := func(text string) string { return strings.TrimSuffix(text, none) }
	return scheduleJSON{
		Workspace: ws, FullName: ws.FullName(), StartsAt: some(startsAt(ws.AutostartSchedule)),
		StartsNext: some(startsNext(ws)),
		StopsAfter: some(stopsAfter(ws)), StopsNext: some(stopsAt(ws)),
	}
}

// none is the cell of a table that shows no time.
const none = "–"

// listSchedules prints the schedules of the workspaces that a search finds, "" for all.
func listSchedules(ctx context.Context, g *global.Flags, out output.List[sdk.Workspace], search string) error {
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	list, err := client.AllWorkspaces(ctx, search, "")
	if err != nil {
		return err
	}
	return out.Print(g.Streams().Out, list)
}

// printConsequences lists what happens to the workspace if nothing changes, and why its last automatic build was made.
func printConsequences(out io.Writer, ws sdk.Workspace) {
	if ws.LatestBuild.Explanation != "" {
		fmt.Fprintln(out, tty.Clean(ws.LatestBuild.Explanation))
	}
	if ws.DormantAt != nil {
		fmt.Fprintf(out, "Dormant since %s. Wake it: coder start %s\n",
			ws.DormantAt.Local().Format("Mon 2006-01-02 15:04"), shell.Word(ws.FullName()))
	}
	for _, c := range ws.Consequences {
		fmt.Fprintln(out, tty.Clean(c.Explanation))
	}
}

func startsAt(schedule *string) string {
	if schedule == nil || *schedule == "" {
		return none
	}
	return readable(*schedule)
}

func startsNext(ws sdk.Workspace) string {
	if ws.NextStartAt == nil {
		return none
	}
	return ws.NextStartAt.Local().Format("Mon 2006-01-02 15:04")
}

var (
	daily    = lazyregexp.New(`^(?:CRON_TZ=(\S+) )?(\d{1,2}) (\d{1,2}) \* \* (\S+)$`)
	dayDigit = lazyregexp.New(`[0-7]`)
)

// readable formats a schedule of one time on some days of the week as "09:30 Mon-Fri (Europe/Berlin)". It returns any
// other schedule unchanged.
func readable(schedule string) string {
	m := daily().FindStringSubmatch(schedule)
	if m == nil || strings.Contains(m[4], "/") {
		return schedule
	}
	days := dayDigit().ReplaceAllStringFunc(m[4], func(digit string) string {
		return time.Weekday((digit[0] - '0') % 7).String()[:3]
	})
	if days == "*" {
		days = "every day"
	}
	minute, _ := strconv.Atoi(m[2]) // the expression matches only digits
	hour, _ := strconv.Atoi(m[3])
	text := fmt.Sprintf("%02d:%02d %s", hour, minute, days)
	if m[1] != "" {
		text += " (" + m[1] + ")"
	}
	return text
}

func stopsAfter(ws sdk.Workspace) string {
	if ws.TTLMillis == nil {
		return none
	}
	return shortDuration(time.Duration(*ws.TTLMillis) * time.Millisecond)
}

func stopsAt(ws sdk.Workspace) string {
	if ws.LatestBuild.Status != sdk.WorkspaceRunning || ws.LatestBuild.Deadline == nil || ws.DormantAt != nil {
		return none
	}
	return ws.LatestBuild.Deadline.Local().Format("2006-01-02 15:04")
}

// shortDuration formats a duration without the units that are zero: 8h, 1h30m.
func shortDuration(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func scheduleStopCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:     "stop WORKSPACE {DURATION | manual}",
		Short:   "Stop a workspace some time after each start",
		Long:    `Stop a workspace some time after each start. This takes effect at the next start; "manual" turns it off now.`,
		Example: "  coder schedule stop dev 8h30m\n  coder schedule stop dev manual",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var req sdk.UpdateTTLRequest
			if args[1] != "manual" {
				d, err := flags.ParseDuration(args[1])
				if err != nil {
					return err
				}
				millis := d.Milliseconds()
				req.TTLMillis = &millis
			}
			client, ws, err := find(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			if err := client.UpdateTTL(cmd.Context(), ws.ID, req); err != nil {
				return err
			}
			if req.TTLMillis == nil {
				fmt.Fprintf(g.Streams().Err, "Autostop is off for %s.\n", ws.FullName())
			} else {
				fmt.Fprintf(g.Streams().Err, "%s will stop %s after its next start.\n", ws.FullName(), args[1])
			}
			return nil
		},
	}
}

func scheduleExtendCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:     "extend WORKSPACE DURATION",
		Aliases: []string{"override-stop"},
		Short:   "Change when a running workspace stops",
		Example: `  coder schedule extend dev 2h`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := flags.ParseDuration(args[1])
			if err != nil {
				return err
			}
			client, ws, err := find(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			deadline := time.Now().Add(d)
			if err := client.ExtendWorkspace(cmd.Context(), ws.ID, sdk.ExtendRequest{Deadline: deadline}); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "%s stops at %s.\n", ws.FullName(), deadline.Format("2006-01-02 15:04"))
			return nil
		},
	}
}
