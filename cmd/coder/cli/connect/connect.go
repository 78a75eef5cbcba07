package connect

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/laptop"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

type connectOptions struct {
	dir, user, format string
	foreground        bool
}

func connectCmd(g *global.Flags) *cobra.Command {
	var opts connectOptions
	cmd := &cobra.Command{
		Use:   "connect",
		Short: "Reach all ports of workspaces by name",
		Long: `Let every program on this machine reach the workspaces that you may connect to, by name and peer to peer: ssh dev.coder,
curl http://dev.coder:8000, psql -h dev.ada.coder. Only your own programs reach them, not those of other users of the machine.

It works on Linux. It needs root once, for a network device, its routes and its name server; what carries your traffic runs as you.`,
		Example: `  sudo coder connect up
  coder connect status
  coder connect down`,
	}
	up := &cobra.Command{
		Use:   "up",
		Short: "Connect this machine",
		Example: `  sudo coder connect up
  sudo coder connect up --user ada --foreground`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runConnectUp(cmd.Context(), g, opts) },
	}
	up.Flags().BoolVar(&opts.foreground, "foreground", false, "stay in the foreground until interrupted")
	up.Flags().StringVar(&opts.user, "user", "", "user of this machine whose programs reach workspaces (default: the one who called sudo)")
	down := &cobra.Command{
		Use:     "down",
		Short:   "Disconnect this machine, or clean up after a crash",
		Example: `  coder connect down`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runConnectDown(cmd.Context(), g, opts) },
	}
	status := &cobra.Command{
		Use:     "status",
		Short:   "Show which workspaces this machine reaches",
		Example: `  coder connect status -o json`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runConnectStatus(cmd.Context(), g, opts) },
	}
	status.Flags().StringVarP(&opts.format, "output", "o", "table", "table or json")
	for _, sub := range []*cobra.Command{up, down, status} {
		sub.Flags().StringVar(&opts.dir, "run-dir", "/run/coder-connect", "folder for the state and the control socket")
		flags.SetEnv(sub.Flags().Lookup("run-dir"), "CODER_CONNECT_RUN_DIR")
	}
	cmd.AddCommand(up, down, status)
	return cmd
}

func runConnectStatus(ctx context.Context, g *global.Flags, opts connectOptions) error {
	if opts.format != "table" && opts.format != "json" {
		return output.BadFormat(opts.format, "table or json")
	}
	st, err := laptop.Ask(ctx, opts.dir)
	if err != nil {
		return explainDown(err)
	}
	out := g.Streams().Out
	if opts.format == "json" {
		return output.JSON(out, st)
	}
	return showConnect(out, st)
}

// showConnect shows the status to a person.
func showConnect(out io.Writer, st laptop.Status) error {
	fmt.Fprintf(out, "Connected to %s as %s, since %s.\n", st.Server, st.User, output.Ago(st.Since))
	fmt.Fprintf(out, "Device %s, names by %s.\n", st.Device, st.Resolver)
	for _, route := range st.Overlaps {
		fmt.Fprintf(out, "Another route leads to some of the mesh's addresses: %s. For your programs, workspaces come first.\n", route)
	}
	if len(st.Workspaces) == 0 {
		fmt.Fprintln(out, "No workspace that you may connect to is running.")
		return nil
	}
	table := tty.Table{Header: []string{"NAMES", "ADDRESS"}}
	for _, ws := range st.Workspaces {
		table.Rows = append(table.Rows, []string{strings.Join(ws.Names, " "), ws.Address.String()})
	}
	return table.Write(out)
}
