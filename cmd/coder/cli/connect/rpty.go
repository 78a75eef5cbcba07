package connect

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/session"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/nearest"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// RptyCmd returns "rpty", which opens the same terminals as the dashboard.
func RptyCmd(g *global.Flags) *cobra.Command {
	var id, container string
	cmd := &cobra.Command{
		Use:   "rpty WORKSPACE [COMMAND]",
		Short: "Open a terminal that outlives the connection",
		Long: `Open a terminal that outlives the connection. Its shell keeps running when the connection ends and when the server or the agent
restarts; the same id reattaches to it, here or in the dashboard, and shows what it printed. The terminal ends with its shell, or a day after the last
client has left.`,
		Example: `  coder exp rpty dev                                               # prints its id
  coder exp rpty dev --container app                               # in the dev container app
  coder exp rpty dev --reconnect 6e8f3f5e-6f0f-4c1c-9d31-3d5b4a1f2b11`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return runRpty(cmd.Context(), g, args, id, container) },
	}
	cmd.Flags().StringVarP(&id, "reconnect", "r", "", "id of the terminal (default a new one)")
	cmd.Flags().StringVarP(&container, "container", "c", "",
		"name of the workspace's dev container to open the terminal in")
	return cmd
}

func runRpty(ctx context.Context, g *global.Flags, args []string, id, container string) error {
	req := ptywire.Request{ID: uuid.New()}
	if id != "" {
		var err error
		if req.ID, err = uuid.Parse(id); err != nil {
			return fault.New(fault.Invalid, "--reconnect must be a UUID, not %q", id)
		}
	}
	if len(args) > 1 {
		req.Command = args[1]
	}
	name, err := target.ParseName(args[0])
	if err != nil {
		return err
	}
	if container != "" {
		if name, err = inContainer(ctx, g, name, container); err != nil {
			return err
		}
	}
	opts, err := targetOptions(ctx, g, name)
	if err != nil {
		return err
	}
	opts.Autostart = true
	t, err := target.Reach(ctx, opts)
	if err != nil {
		return err
	}
	defer t.Mesh.Close()
	fmt.Fprintf(g.Streams().Err, "Terminal %s\n", req.ID)
	over := &session.Session{Target: t, Streams: g.Streams(), Logger: g.Logger()}
	return over.Attach(ctx, req,
		fmt.Sprintf("coder exp rpty %s --reconnect %s", shell.Word(args[0]), shell.Word(req.ID.String())))
}

// inContainer returns the name of the agent in a dev container of a workspace, or of the named agent.
func inContainer(ctx context.Context, g *global.Flags, name target.Name, container string) (target.Name, error) {
	client, err := g.Client(ctx)
	if err != nil {
		return name, err
	}
	ws, err := client.WorkspaceByName(ctx, name.Owner, name.Name)
	if err != nil {
		return name, err
	}
	if !ws.Running() {
		name.Agent = container // the start tells
		return name, nil
	}
	agents, names := ws.LatestBuild.Agents(), []string{}
	for _, inside := range agents {
		for _, outer := range agents {
			if inside.ParentID == nil || *inside.ParentID != outer.ID || name.Agent != "" && outer.Name != name.Agent {
				continue
			}
			if inside.Name == container {
				name.Agent = container
				return name, nil
			}
			names = append(names, inside.Name)
		}
	}
	refused := fault.New(fault.NotFound, "the workspace %s has no dev container %q", name, container)
	if len(names) == 0 {
		return name, exit.Try(refused, "coder exp rpty %s", shell.Word(name.String()))
	}
	meant := cmp.Or(nearest.To(container, names), names[0])
	return name, exit.Try(refused, "coder exp rpty %s --container %s", shell.Word(name.String()), shell.Word(meant))
}
