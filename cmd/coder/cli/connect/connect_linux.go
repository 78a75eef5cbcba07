package connect

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/laptop"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/memory"
	"github.com/codermesh/codermesh/v2/meshclient"
)

func runConnectUp(ctx context.Context, g *global.Flags, opts connectOptions) error {
	stage := laptop.CurrentStage()
	if stage == laptop.Server {
		return serveConnect(ctx, g)
	}
	if os.Geteuid() != 0 {
		return exit.Try(fault.New(fault.Forbidden, "coder connect up needs root, to create a network device"),
			"sudo coder connect up")
	}
	owner, err := laptop.UserFor(opts.user)
	if err != nil {
		return fault.New(fault.Invalid, "cannot find the user: %w", err)
	}
	if stage == laptop.Up && !opts.foreground {
		if err := laptop.Background(ctx, opts.dir, os.Args[1:], g.Streams().Err); err != nil {
			return err
		}
		st, err := laptop.Ask(ctx, opts.dir)
		if err != nil {
			return err
		}
		warnOfOverlaps(g, st.Setup)
		fmt.Fprintf(g.Streams().Out, "Connected. Programs of %s reach workspaces by name: ssh dev.coder\n",
			owner.Username)
		return nil
	}
	keep := laptop.KeepOptions{Dir: opts.dir, User: owner, Args: os.Args[1:], Logger: g.Logger()}
	if stage == laptop.Keeper {
		keep.Ready = laptop.KeeperReady()
	}
	return laptop.Keep(ctx, keep)
}

// serveConnect is the process that the keeper starts as the user.
func serveConnect(ctx context.Context, g *global.Flags) error {
	defer memory.Return(memory.Quiet, nil).Stop()
	setup, device, control, ready, err := laptop.Inherited()
	if err != nil {
		return err
	}
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	mesh := meshclient.Start(meshclient.Options{
		URL: client.URL(), Header: client.Header(), HTTPClient: client.HTTP(), TLS: client.TLS(),
		RelayOnly: g.RelayOnly, Logger: g.Logger(),
	})
	defer mesh.Close()
	return laptop.Serve(ctx, laptop.ServeOptions{
		Client: client, Mesh: mesh, Device: device, Control: control, Setup: setup, Logger: g.Logger(),
		Ready: func() {
			fmt.Fprintf(g.Streams().Err, "Connected to %s.\n", client.URL())
			warnOfOverlaps(g, setup)
			ready()
		},
	})
}

func warnOfOverlaps(g *global.Flags, setup laptop.Setup) {
	for _, route := range setup.Overlaps {
		fmt.Fprintf(g.Streams().Err,
			"Another route leads to some of the mesh's addresses: %s. Workspaces come first.\n", route)
	}
}

func runConnectDown(ctx context.Context, g *global.Flags, opts connectOptions) error {
	err := laptop.Down(ctx, opts.dir)
	if err == nil {
		fmt.Fprintln(g.Streams().Out, "Disconnected.")
		return nil
	}
	if !errors.Is(err, laptop.ErrDown) {
		return err
	}
	if !laptop.Left(opts.dir) {
		return explainDown(err)
	}
	if os.Geteuid() != 0 {
		killed := fault.New(fault.Forbidden,
			"coder connect was killed and has left changes behind, which only root can take back")
		return exit.Try(killed, "sudo coder connect down")
	}
	if err := laptop.Restore(ctx, opts.dir); err != nil {
		return err
	}
	fmt.Fprintln(g.Streams().Out, "Cleaned up after a coder connect that was killed.")
	return nil
}

// explainDown adds how to connect to the error that says that the machine is not connected.
func explainDown(err error) error {
	if errors.Is(err, laptop.ErrDown) {
		return exit.Try(err, "sudo coder connect up")
	}
	return err
}
