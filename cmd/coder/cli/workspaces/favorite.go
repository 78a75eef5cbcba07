package workspaces

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func favoriteCmd(g *global.Flags) *cobra.Command {
	return favoriteOf(g, "favorite", "Mark a workspace as a favorite", (*sdk.Client).FavoriteWorkspace, "is a favorite")
}

func unfavoriteCmd(g *global.Flags) *cobra.Command {
	return favoriteOf(g, "unfavorite", "Remove a workspace from your favorites", (*sdk.Client).UnfavoriteWorkspace,
		"is no longer a favorite")
}

func favoriteOf(
	g *global.Flags, name, short string, set func(*sdk.Client, context.Context, uuid.UUID) error, done string,
) *cobra.Command {
	return &cobra.Command{
		Use:     name + " WORKSPACE",
		Short:   short,
		Example: "  coder " + name + " dev",
		Args:    flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, ws, err := find(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			if err := set(client, cmd.Context(), ws.ID); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "%s %s.\n", ws.FullName(), done)
			return nil
		},
	}
}
