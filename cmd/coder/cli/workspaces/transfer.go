package workspaces

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func transferCmd(g *global.Flags) *cobra.Command {
	var yes bool
	var req sdk.TransferWorkspaceRequest
	cmd := &cobra.Command{
		Use:   "transfer WORKSPACE NEW-OWNER",
		Short: "Give a workspace to another user",
		Long: `Give a workspace to another member of its organization, by name or id. Owners of the deployment and admins of the organization can do this.

The server stops the workspace first. Its resources and files stay; sessions, shares, shared ports, scheduled starts and the former owner's secret
parameters end. Both users are notified. The workspace starts with the credentials of its new owner, when they start it. That start may replace resources
whose names contain the owner.`,
		Example: "  coder transfer ann/dev bob\n  coder transfer ann/dev bob --name dev-ann -y",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Owner = args[1]
			return onWorkspace(g, cmd, args[0], func(ctx context.Context, client *sdk.Client, ws sdk.Workspace) error {
				stops := "It is stopped first. "
				if ws.Stopped() {
					stops = ""
				}
				fmt.Fprintf(g.Streams().Err, "%s%s loses access to %s, which keeps its files. Its sharing, shared ports and scheduled starts end.\n", stops, ws.OwnerName, ws.FullName())
				if err := g.Confirm(cmd, yes, fmt.Sprintf("Transfer %s to %s?", ws.FullName(), req.Owner), false); err != nil {
					return err
				}
				return transfer(ctx, g, client, ws, req)
			})
		},
	}
	cmd.Flags().StringVar(&req.Name, "name", "", "name of the workspace from then on (default: its present one)")
	flags.Yes(cmd, &yes)
	return cmd
}

// transfer has the server transfer a workspace, and follows the stop that comes first. The server goes on if this
// program ends.
func transfer(
	ctx context.Context, g *global.Flags, client *sdk.Client, ws sdk.Workspace, req sdk.TransferWorkspaceRequest,
) error {
	again := fmt.Sprintf("coder transfer %s %s", shell.Word(ws.FullName()), shell.Word(req.Owner))
	now, err := client.TransferWorkspace(ctx, ws.ID, req)
	if err == nil && now.OwnerID == ws.OwnerID {
		if err := finish(ctx, g, client, ws, now.LatestBuild, false); err != nil {
			return err
		}
		if now, err = client.Workspace(ctx, ws.ID); err == nil && now.OwnerID == ws.OwnerID {
			now, err = client.TransferWorkspace(ctx, ws.ID, req) // the server answers what has changed meanwhile
		}
	}
	if f := fault.As(err); f != nil && f.Code == fault.Conflict && hasField(f, "name") {
		return exit.Try(err, "%s --name %s", again, shell.Word(ws.Name+"-"+strings.ToLower(ws.OwnerName)))
	}
	if err != nil {
		return err
	}
	if now.OwnerID == ws.OwnerID {
		return exit.Try(fault.New(fault.Conflict, "the workspace %s was started again before it could be transferred",
			ws.FullName()), "%s", again)
	}
	fmt.Fprintf(g.Streams().Err, "The workspace %s now belongs to %s: %s. It is stopped.\n", ws.FullName(),
		now.OwnerName, now.FullName())
	return nil
}

func hasField(f *fault.Error, name string) bool {
	return slices.ContainsFunc(f.Fields, func(field fault.Field) bool { return field.Field == name })
}
