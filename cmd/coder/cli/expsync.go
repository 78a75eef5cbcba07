package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/agent/units"
	"github.com/codermesh/codermesh/internal/backoff"
	"github.com/codermesh/codermesh/internal/fault"
)

type syncOptions struct {
	socket  string
	timeout time.Duration
	format  string
}

// syncCmd speaks with the agent of the workspace that it runs in, and needs no server.
func (a *app) syncCmd() *cobra.Command {
	var o syncOptions
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Let the scripts of this workspace wait for each other",
		Long: `Let the scripts of a workspace wait for each other. Each names what it does, its unit, and what it wants to be complete before.
These commands speak with the agent of the workspace that they run in.`,
		Example: `  coder exp sync want ide clone     # before it starts, "ide" needs "clone" to be complete
  coder exp sync start ide          # waits for that
  coder exp sync complete ide       # lets those start that want "ide"
  coder exp sync status ide`,
		Args: cobra.NoArgs,
	}
	cmd.PersistentFlags().StringVar(&o.socket, "socket-path", "", "the agent's socket (default the workspace's own)")
	SetEnv(cmd.PersistentFlags().Lookup("socket-path"), units.SocketEnv)
	start := &cobra.Command{
		Use: "start UNIT", Short: "Wait until everything that a unit wants is complete, and start it",
		Example: "  coder exp sync start ide --timeout 10m", Args: argument("unit"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := askSync(cmd.Context(), o, units.Request{Do: "start", Unit: args[0]})
			return err
		},
	}
	start.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait")
	status := &cobra.Command{
		Use: "status UNIT", Short: "Show a unit and what it waits for",
		Example: "  coder exp sync status ide -o json", Args: argument("unit"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := askSync(cmd.Context(), o, units.Request{Do: "status", Unit: args[0]})
			if err != nil {
				return err
			}
			return a.printUnit(u, o.format)
		},
	}
	status.Flags().StringVarP(&o.format, "output", "o", "text", "text or json")
	cmd.AddCommand(start, status,
		&cobra.Command{
			Use: "want UNIT OTHER...", Short: "Declare that a unit cannot start before others are complete",
			Example: "  coder exp sync want ide clone tools", Args: cobra.MinimumNArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := askSync(cmd.Context(), o, units.Request{Do: "want", Unit: args[0], Wants: args[1:]})
				return err
			},
		},
		&cobra.Command{
			Use: "complete UNIT", Short: "Mark a unit complete",
			Example: "  coder exp sync complete ide", Args: argument("unit"),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := askSync(cmd.Context(), o, units.Request{Do: "complete", Unit: args[0]})
				return err
			},
		},
		&cobra.Command{
			Use: "ping", Short: "Ask whether the agent answers", Example: "  coder exp sync ping", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := askSync(cmd.Context(), o, units.Request{Do: "ping"})
				return err
			},
		},
	)
	return cmd
}

const (
	// syncAway is how long an agent that does not answer is asked again: it may be restarting.
	syncAway = 30 * time.Second
	// syncLate is how long after its time the agent's word on a start is waited for: only the agent knows whether the unit was
	// started.
	syncLate = 5 * time.Second
)

// askSync asks the workspace's agent, and again while it is away for a moment. A start has o.timeout for all of it.
func askSync(ctx context.Context, o syncOptions, r units.Request) (units.Unit, error) {
	path := o.socket
	if path == "" {
		return units.Unit{}, Try(fault.New(fault.Invalid, "this is no workspace: $%s is not set", units.SocketEnv), "coder exp sync --help")
	}
	pause := backoff.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	lost := time.Now()
	until := lost.Add(o.timeout)
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
			lost = time.Now() // it was there
		}
		switch {
		case err == nil:
			return u, nil
		case ctx.Err() == context.DeadlineExceeded, start && errors.Is(err, units.ErrAway) && time.Now().After(until):
			return u, Try(fault.New(fault.Unavailable, "%s could not start in time", r.Unit), "coder exp sync status %s", r.Unit)
		case ctx.Err() != nil:
			return u, ctx.Err()
		case !errors.Is(err, units.ErrAway):
			return u, Try(fault.New(fault.Conflict, "%w", err), "coder exp sync status %s", r.Unit)
		case time.Since(lost) > syncAway:
			return u, Try(fault.New(fault.Unavailable, "the workspace's agent does not answer: %w", err), "coder exp sync ping")
		}
		if err := pause.Wait(ctx); err != nil {
			return u, err
		}
	}
}

func (a *app) printUnit(u units.Unit, format string) error {
	switch format {
	case "json":
		return printJSON(a.streams().Out, u)
	case "text":
	default:
		return badFormat(format, "text or json")
	}
	text := u.Name + ": " + string(u.Status)
	switch {
	case !u.Known:
		text = u.Name + ": nobody has named it yet"
	case len(u.Waits) > 0:
		text += ", waits for " + strings.Join(u.Waits, ", ")
	case u.Ready:
		text += ", may start"
	}
	_, err := fmt.Fprintln(a.streams().Out, text)
	return err
}
