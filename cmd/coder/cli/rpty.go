package cli

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/ptywire"
)

// rptyCmd opens the terminals that browsers do.
func (a *app) rptyCmd() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "rpty WORKSPACE [COMMAND]",
		Short: "Open a terminal that lasts: the same id brings the same shell back, with what it printed",
		Long: `Open a terminal that lasts. Its shell goes on when the connection ends, and when the server or the agent is restarted; the same
id brings it back, here or in the dashboard. It ends with the shell, or a day after the last look at it.`,
		Example: `  coder exp rpty dev                                               # prints its id
  coder exp rpty dev --reconnect 6e8f3f5e-6f0f-4c1c-9d31-3d5b4a1f2b11`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.rpty(cmd.Context(), args, id) },
	}
	cmd.Flags().StringVarP(&id, "reconnect", "r", "", "id of the terminal (default a new one)")
	return cmd
}

func (a *app) rpty(ctx context.Context, args []string, id string) error {
	req := ptywire.Request{ID: uuid.New()}
	if id != "" {
		var err error
		if req.ID, err = uuid.Parse(id); err != nil {
			return fault.New(fault.Invalid, "%q is no id of a terminal: --reconnect is a UUID", id)
		}
	}
	if len(args) > 1 {
		req.Command = args[1]
	}
	name, err := parseWorkspaceName(args[0])
	if err != nil {
		return err
	}
	opts, err := a.reachOptions(ctx, name)
	if err != nil {
		return err
	}
	opts.autostart = true
	t, err := reach(ctx, opts)
	if err != nil {
		return err
	}
	defer t.mesh.Close()
	fmt.Fprintf(a.streams().Err, "Terminal %s\n", req.ID)
	over := &session{target: t, streams: a.streams(), logger: a.logger()}
	return over.lasting(ctx, req, fmt.Sprintf("coder exp rpty %s --reconnect %s", args[0], req.ID))
}
