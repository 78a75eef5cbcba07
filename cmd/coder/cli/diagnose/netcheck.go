package diagnose

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/meshclient"
	"github.com/codermesh/codermesh/v2/tailnet"
)

func netcheckCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "netcheck",
		Short: "Print a report on this machine's network as JSON",
		Long: `Join the mesh, measure this machine's network and print a report as JSON.

"derp" contains the relays, "interfaces" the network interfaces, each with a severity (ok, warning, error) and warnings that say what is wrong.`,
		Example: `  coder netcheck`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			client, err := g.Client(ctx)
			if err != nil {
				return err
			}
			report, err := netcheck(ctx, g, client)
			if err != nil {
				return err
			}
			return output.JSON(g.Streams().Out, report)
		},
	}
}

// networkReport describes what this machine's network allows. Other programs read these names: derp and interfaces are
// what editors show.
type networkReport struct {
	Server     string           `json:"server"`
	Report     tailnet.Report   `json:"report"`
	Node       tailnet.Status   `json:"node"`
	DERP       relayHealth      `json:"derp"`
	Interfaces interfacesHealth `json:"interfaces"`
}

// netcheck joins the mesh to learn the relays, and measures.
func netcheck(ctx context.Context, g *global.Flags, client *sdk.Client) (networkReport, error) {
	mesh := joinMesh(g, client)
	defer target.LeaveQuickly(mesh.Leave)
	if _, err := mesh.Joined(ctx); err != nil {
		return networkReport{}, err
	}
	node, err := mesh.Node()
	if err != nil {
		return networkReport{}, err
	}
	report, err := node.Netcheck(ctx)
	if err != nil {
		return networkReport{}, fault.New(fault.Unavailable, "cannot check the network: %w", err)
	}
	interfaces, err := checkInterfaces()
	if err != nil {
		return networkReport{}, err
	}
	return networkReport{client.URL().String(), report, node.Status(), checkRelays(report), interfaces}, nil
}

// joinMesh starts to join the mesh, for measurements.
func joinMesh(g *global.Flags, client *sdk.Client) *meshclient.Client {
	return target.Join(target.Options{Client: client, Logger: g.Logger(), RelayOnly: g.RelayOnly})
}
