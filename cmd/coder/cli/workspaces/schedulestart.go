package workspaces

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func scheduleStartCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "start WORKSPACE {TIME [DAYS] [ZONE] | manual}",
		Short: "Start a workspace at a time of day",
		Long: `Start a workspace at a time of day: every day, or on the given days (Mon-Fri, or Mon,Wed,Sat), in the given time zone (default this
machine's). "manual" turns automatic start off. A cron expression as a single argument works too.`,
		Example: `  coder schedule start dev 9:30AM Mon-Fri Europe/Berlin
  coder schedule start dev "CRON_TZ=Europe/Berlin 30 9 * * 1-5"
  coder schedule start dev manual`,
		Args: cobra.RangeArgs(2, 4),
		RunE: func(cmd *cobra.Command, args []string) error {
			schedule, err := parseStart(args[1:], localZone())
			if err != nil {
				return err
			}
			client, ws, err := find(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			if err := client.UpdateAutostart(cmd.Context(), ws.ID, sdk.UpdateAutostartRequest{
				Schedule: schedule,
			}); err != nil {
				return err
			}
			if schedule == nil {
				fmt.Fprintf(g.Streams().Err, "Autostart is off for %s.\n", ws.FullName())
			} else {
				fmt.Fprintf(g.Streams().Err, "%s starts at %s.\n", ws.FullName(), readable(*schedule))
			}
			return nil
		},
	}
}

var clockTime = lazyregexp.New(`^(?i)(\d{1,2})(?::(\d\d))?\s*(am|pm)?$`)

// parseStart converts a time of day, days and a zone to a cron expression; nil means no automatic start. The server
// checks days and zone.
func parseStart(words []string, zone string) (*string, error) {
	if len(words) == 1 && words[0] == "manual" {
		return nil, nil
	}
	if len(words) == 1 && strings.Contains(words[0], " ") {
		return &words[0], nil
	}
	hour, minute, err := parseClock(words[0])
	if err != nil {
		return nil, err
	}
	days := "*"
	for _, word := range words[1:] {
		if isZone(word) {
			zone = word
		} else {
			days = word
		}
	}
	schedule := fmt.Sprintf("CRON_TZ=%s %d %d * * %s", zone, minute, hour, days)
	return &schedule, nil
}

// parseStartAt is parseStart for words in one text, which may also be a cron expression of at least five words.
func parseStartAt(text, zone string) (*string, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, fault.New(fault.Invalid, "--start-at is empty: it must be a time, such as 9:30AM Mon-Fri")
	}
	if len(words) > 4 {
		return &text, nil
	}
	return parseStart(words, zone)
}

// isZone distinguishes time zones from days: a zone is UTC or Area/City.
func isZone(word string) bool { return strings.Contains(word, "/") || strings.EqualFold(word, "UTC") }

func parseClock(text string) (hour, minute int, err error) {
	refuse := fault.New(fault.Invalid, "the time %q is not like 9:30, 9:30AM or 21:00", text)
	m := clockTime().FindStringSubmatch(text)
	if m == nil {
		return 0, 0, refuse
	}
	hour, _ = strconv.Atoi(m[1]) // two digits at most
	if m[2] != "" {
		minute, _ = strconv.Atoi(m[2])
	}
	if m[3] != "" {
		if hour < 1 || hour > 12 {
			return 0, 0, refuse
		}
		hour %= 12
		if strings.EqualFold(m[3], "pm") {
			hour += 12
		}
	}
	if hour > 23 || minute > 59 {
		return 0, 0, refuse
	}
	return hour, minute, nil
}

// localZone returns the name of this machine's time zone if it is known; the server has no other way to learn it.
func localZone() string {
	if name := time.Local.String(); name != "Local" && name != "" {
		return name
	}
	return systemZone()
}
