package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/meshclient"
	"github.com/codermesh/codermesh/tailnet"
)

func (a *app) netcheckCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "netcheck",
		Short:   "Print what this machine's network allows, as JSON",
		Example: `  coder netcheck`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			client, err := a.client(ctx)
			if err != nil {
				return err
			}
			report, err := a.netcheck(ctx, client)
			if err != nil {
				return err
			}
			return printJSON(a.streams().Out, report)
		},
	}
}

// networkReport is what this machine's network allows. Other programs read these names.
type networkReport struct {
	Server string         `json:"server"`
	Report tailnet.Report `json:"report"`
	Node   tailnet.Status `json:"node"`
}

// netcheck joins the mesh to learn of the relays, and measures.
func (a *app) netcheck(ctx context.Context, client *sdk.Client) (networkReport, error) {
	mesh := a.joinMesh(client)
	defer leaveQuickly(mesh.Leave)
	if _, err := mesh.Joined(ctx); err != nil {
		return networkReport{}, err
	}
	node, err := mesh.Node()
	if err != nil {
		return networkReport{}, err
	}
	report, err := node.Netcheck(ctx)
	if err != nil {
		return networkReport{}, fault.New(fault.Unavailable, "the network cannot be checked: %w", err)
	}
	return networkReport{client.URL().String(), report, node.Status()}, nil
}

// joinMesh begins to join the mesh, to measure.
func (a *app) joinMesh(client *sdk.Client) *meshclient.Client {
	return joinMesh(reachOptions{client: client, logger: a.logger(), relayOnly: a.disableDirect})
}
