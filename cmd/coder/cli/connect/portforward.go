package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/forward"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

type portForwardOptions struct {
	tcp, udp    []string
	noAutostart bool
}

func portForwardCmd(g *global.Flags) *cobra.Command {
	var opts portForwardOptions
	cmd := &cobra.Command{
		Use:   "port-forward WORKSPACE",
		Short: "Forward workspace ports to this machine",
		Long: `Forward ports of a workspace to this machine until interrupted. A forward is [address:]local[:remote], where local and remote are
ports or ranges of the same length. Separate several with commas. The default address is 127.0.0.1.

The local ports stay open when the workspace stops; connections to them are refused until it runs again.`,
		Example: `  coder port-forward dev --tcp 8080
  coder port-forward dev --tcp 8080:80,9000-9005 --udp 5353:53
  coder port-forward dev --tcp 0.0.0.0:8080:80`,
		Args: flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error { return runPortForward(cmd.Context(), g, args[0], opts) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&opts.tcp, "tcp", "p", nil, "TCP ports to forward, as [address:]local[:remote]; may be repeated")
	f.StringArrayVar(&opts.udp, "udp", nil, "UDP ports to forward, as [address:]local[:remote]; may be repeated")
	f.BoolVar(&opts.noAutostart, "disable-autostart", false, "do not start a stopped workspace")
	return cmd
}

// runPortForward serves until ctx ends, the workspace is deleted or the session is over. Its listeners survive a stop
// of the workspace.
func runPortForward(ctx context.Context, g *global.Flags, workspace string, opts portForwardOptions) error {
	name, err := target.ParseName(workspace)
	if err != nil {
		return err
	}
	forwards, err := forward.Parse(opts.tcp, opts.udp)
	if err != nil {
		return exit.Try(err, "coder port-forward %s --tcp 8080:80", shell.Word(workspace))
	}
	listeners, err := forward.Listen(ctx, forwards)
	if err != nil {
		return err
	}
	defer forward.Close(listeners)
	reachOpts, err := targetOptions(ctx, g, name)
	if err != nil {
		return err
	}
	reachOpts.Autostart, reachOpts.Reason = !opts.noAutostart, sdk.ReasonCLI
	t, err := target.Reach(ctx, reachOpts)
	if err != nil {
		return err
	}
	defer t.Mesh.Close()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	redial := target.NewRedialer(t)
	var wg sync.WaitGroup
	for i, f := range forwards {
		fmt.Fprintf(g.Streams().Err, "Forwarding %s %s to port %d of %s\n", f.Network, f.Local, f.Remote,
			t.Workspace.FullName())
		dial := func() (net.Conn, error) { return redial.Dial(ctx, f.Network, f.Remote) }
		warn := func(err error) { fmt.Fprintf(g.Streams().Err, "port %d of the workspace: %v\n", f.Remote, err) }
		switch l := listeners[i].(type) {
		case net.Listener:
			wg.Go(func() { forward.ServeTCP(ctx, l, dial, warn) })
		case net.PacketConn:
			wg.Go(func() { forward.ServeUDP(ctx, l, dial, warn) })
		}
	}
	note := func(text string) { fmt.Fprintln(g.Streams().Err, text) }
	wg.Go(func() { cancel(redial.Run(ctx, name, note)) })
	wg.Go(func() { t.ReportUsage(ctx, "reconnecting-pty") })
	<-ctx.Done()
	forward.Close(listeners)
	redial.CloseAll()
	t.Mesh.Close() // ends open connections
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return ctx.Err()
}
