package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/sdk"
)

func (a *app) portForwardCmd() *cobra.Command {
	var tcp, udp []string
	var noAutostart bool
	cmd := &cobra.Command{
		Use:   "port-forward WORKSPACE",
		Short: "Forward workspace ports to this machine",
		Long: `Make ports of a workspace reachable on this machine until interrupted. A forward is [address:]local[:remote], where local and
remote are ports or ranges of the same length; several are separated by commas. The address is 127.0.0.1 unless given.

When the workspace is stopped the local ports stay: connections are refused until it runs again.`,
		Example: `  coder port-forward dev --tcp 8080
  coder port-forward dev --tcp 8080:80,9000-9005 --udp 5353:53
  coder port-forward dev --tcp 0.0.0.0:8080:80`,
		Args: argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := parseWorkspaceName(args[0])
			if err != nil {
				return err
			}
			forwards, err := parseForwards(tcp, udp)
			if err != nil {
				return Try(err, "coder port-forward %s --tcp 8080:80", args[0])
			}
			return a.portForward(cmd.Context(), name, forwards, !noAutostart)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&tcp, "tcp", "p", nil, "forward TCP; may be repeated")
	f.StringArrayVar(&udp, "udp", nil, "forward UDP; may be repeated")
	f.BoolVar(&noAutostart, "disable-autostart", false, "do not start a stopped workspace")
	return cmd
}

// portForward serves until ctx ends, the workspace is deleted or the session is over. Its listeners outlive a stop of the workspace.
func (a *app) portForward(ctx context.Context, name workspaceName, forwards []portForward, autostart bool) error {
	listeners, err := listenAll(ctx, forwards)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	opts, err := a.reachOptions(ctx, name)
	if err != nil {
		return err
	}
	opts.autostart, opts.reason = autostart, sdk.ReasonCLI
	t, err := reach(ctx, opts)
	if err != nil {
		return err
	}
	defer t.mesh.Close()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	redial := newRedialer(t)
	var wg sync.WaitGroup
	for i, f := range forwards {
		fmt.Fprintf(a.streams().Err, "Forwarding %s %s to port %d of %s\n", f.network, f.local, f.remote, t.workspace.FullName())
		dial := func() (net.Conn, error) { return redial.dial(ctx, f.network, f.remote) }
		warn := func(err error) { fmt.Fprintf(a.streams().Err, "port %d of the workspace: %v\n", f.remote, err) }
		switch l := listeners[i].(type) {
		case net.Listener:
			wg.Go(func() { serveTCP(ctx, l, dial, warn) })
		case net.PacketConn:
			wg.Go(func() { serveUDP(ctx, l, dial, warn) })
		}
	}
	note := func(text string) { fmt.Fprintln(a.streams().Err, text) }
	wg.Go(func() { cancel(redial.run(ctx, name, note)) })
	wg.Go(func() { t.reportUsage(ctx, "reconnecting-pty") })
	<-ctx.Done()
	closeAll(listeners)
	redial.lose()
	t.mesh.Close() // ends the connections that are being carried
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return ctx.Err()
}
