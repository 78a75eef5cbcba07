// Package workspaces holds the commands that create, build and show workspaces, one file for each.
package workspaces

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Commands returns the commands that create, build and show workspaces.
func Commands(g *global.Flags) []*cobra.Command {
	return []*cobra.Command{createCmd(g), startCmd(g), stopCmd(g), restartCmd(g), updateCmd(g), deleteCmd(g), renameCmd(g), transferCmd(g), listCmd(g), showCmd(g), logsCmd(g), openCmd(g), taskCmd(g), stateCmd(g), scheduleCmd(g), sharingCmd(g), autoupdateCmd(g), favoriteCmd(g), unfavoriteCmd(g), externalCmd(g)}
}

// find returns the named workspace, and the client that found it.
func find(ctx context.Context, g *global.Flags, name string) (*sdk.Client, sdk.Workspace, error) {
	client, err := g.Client(ctx)
	if err != nil {
		return nil, sdk.Workspace{}, err
	}
	ws, _, err := target.Find(ctx, client, name)
	return client, ws, err
}
