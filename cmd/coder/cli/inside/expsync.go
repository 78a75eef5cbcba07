package inside

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/agent/units"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

type syncOptions struct {
	socket  string
	timeout time.Duration
	format  string
}

// SyncCmd returns "sync", which talks to the agent of the workspace that it runs in, and needs no server.
func SyncCmd(g *global.Flags) *cobra.Command {
	var opts syncOptions
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Coordinate the scripts of this workspace",
		Long: `Coordinate the scripts of a workspace. Each script names its unit of work and the units that must be complete before it starts.
These commands talk to the agent of the workspace they run in.`,
		Example: `  coder exp sync want ide clone     # before it starts, "ide" needs "clone" to be complete
  coder exp sync start ide          # waits for that
  coder exp sync complete ide       # lets those start that want "ide"
  coder exp sync status ide`,
		Args: cobra.NoArgs,
	}
	cmd.PersistentFlags().StringVar(&opts.socket, "socket-path", "",
		"path of the agent's socket (default the workspace's)")
	flags.SetEnv(cmd.PersistentFlags().Lookup("socket-path"), units.SocketEnv)
	start := &cobra.Command{
		Use: "start UNIT", Short: "Wait for a unit's dependencies and start it",
		Example: "  coder exp sync start ide --timeout 10m", Args: flags.Argument("unit"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := askSync(cmd.Context(), opts, units.Request{Do: "start", Unit: args[0]})
			return err
		},
	}
	start.Flags().DurationVar(&opts.timeout, "timeout", 5*time.Minute, "time to wait for the dependencies")
	status := &cobra.Command{
		Use: "status UNIT", Short: "Show a unit and what it waits for",
		Example: "  coder exp sync status ide -o json", Args: flags.Argument("unit"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := askSync(cmd.Context(), opts, units.Request{Do: "status", Unit: args[0]})
			if err != nil {
				return err
			}
			return printUnit(g, u, opts.format)
		},
	}
	status.Flags().StringVarP(&opts.format, "output", "o", "text", "text or json")
	list := &cobra.Command{
		Use: "list", Short: "List the units that scripts have named", Aliases: []string{"ls"},
		Example: "  coder exp sync list -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := askSync(cmd.Context(), opts, units.Request{Do: "list"})
			if err != nil {
				return err
			}
			return printUnits(g, answer.Units, opts.format)
		},
	}
	list.Flags().StringVarP(&opts.format, "output", "o", "text", "text or json")
	cmd.AddCommand(start, status, list,
		&cobra.Command{
			Use: "want UNIT OTHER...", Short: "Declare that a unit cannot start before others are complete",
			Example: "  coder exp sync want ide clone tools", Args: cobra.MinimumNArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := askSync(cmd.Context(), opts, units.Request{Do: "want", Unit: args[0], Wants: args[1:]})
				return err
			},
		},
		&cobra.Command{
			Use: "complete UNIT", Short: "Mark a unit complete",
			Example: "  coder exp sync complete ide", Args: flags.Argument("unit"),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := askSync(cmd.Context(), opts, units.Request{Do: "complete", Unit: args[0]})
				return err
			},
		},
		&cobra.Command{
			Use: "ping", Short: "Check that the agent answers", Example: "  coder exp sync ping", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := askSync(cmd.Context(), opts, units.Request{Do: "ping"})
				return err
			},
		},
	)
	return cmd
}

const (
	// syncAway is how long to retry an agent that does not answer, since it may be restarting.
	syncAway = 30 * time.Second
	// syncLate is how long after its timeout a start still waits for the agent, which alone knows whether the unit was
	// started.
	syncLate = 5 * time.Second
)

// askSync sends a request to the workspace's agent, and retries while the agent is unreachable. A start must succeed
// within opts.timeout.
func askSync(ctx context.Context, opts syncOptions, r units.Request) (units.Unit, error) {
	path := opts.socket
	if path == "" {
		return units.Unit{}, exit.Try(fault.New(fault.Invalid, "this is not a workspace: $%s is not set",
			units.SocketEnv), "coder exp sync --help")
	}
	pause := backoff.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	lost := time.Now()
	until := lost.Add(opts.timeout)
	start := r.Do == "start"
	if start {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until.Add(syncLate))
		defer cancel()
	}
	for {
		asked := time.Now()
		if start {
			r.WaitMS = max(1, until.Sub(asked).Milliseconds())
		}
		u, err := units.Ask(ctx, path, r)
		if time.Since(asked) > time.Second {
			lost = time.Now() // the agent was reachable before
		}
		switch {
		case err == nil:
			return u, nil
		case ctx.Err() == context.DeadlineExceeded, start && errors.Is(err, units.ErrAway) && time.Now().After(until):
			return u, exit.Try(fault.New(fault.Unavailable, "%s could not start in time", r.Unit),
				"coder exp sync status %s", shell.Word(r.Unit))
		case ctx.Err() != nil:
			return u, ctx.Err()
		case !errors.Is(err, units.ErrAway):
			return u, exit.Try(fault.New(fault.Conflict, "%w", err), "coder exp sync status %s", shell.Word(r.Unit))
		case time.Since(lost) > syncAway:
			return u, exit.Try(fault.New(fault.Unavailable, "the workspace's agent does not answer: %w", err),
				"coder exp sync ping")
		}
		if err := pause.Wait(ctx); err != nil {
			return u, err
		}
	}
}

func printUnits(g *global.Flags, all []units.Unit, format string) error {
	if format == "json" {
		return output.JSON(g.Streams().Out, append([]units.Unit{}, all...))
	}
	if len(all) == 0 && format == "text" {
		fmt.Fprintln(g.Streams().Err, "No script has named a unit.")
		return nil
	}
	for _, u := range all {
		if err := printUnit(g, u, format); err != nil {
			return err
		}
	}
	return nil
}

func printUnit(g *global.Flags, u units.Unit, format string) error {
	switch format {
	case "json":
		return output.JSON(g.Streams().Out, u)
	case "text":
	default:
		return output.BadFormat(format, "text or json")
	}
	text := u.Name + ": " + string(u.Status)
	switch {
	case !u.Known:
		text = u.Name + ": not declared yet"
	case len(u.Waits) > 0:
		text += ", waits for " + strings.Join(u.Waits, ", ")
	case u.Ready:
		text += ", may start"
	}
	_, err := fmt.Fprintln(g.Streams().Out, text)
	return err
}
