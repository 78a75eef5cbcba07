package account

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// feature is a feature with its name.
type feature struct {
	name string
	sdk.Feature
}

func featuresCmd(g *global.Flags) *cobra.Command {
	limit := func(n *int64) string {
		if n == nil {
			return ""
		}
		return strconv.FormatInt(*n, 10)
	}
	out := output.List[feature]{Columns: []output.Column[feature]{
		output.Col("name", func(f feature) string { return f.name }),
		output.Col("entitlement", func(f feature) string { return f.Entitlement }),
		output.Col("enabled", func(f feature) string { return strconv.FormatBool(f.Enabled) }),
		output.Col("limit", func(f feature) string { return limit(f.Limit) }),
		output.Col("actual", func(f feature) string { return limit(f.Actual) }),
	}}
	list := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List features of the server and whether they are available",
		Example: `  coder features list -o json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			all, err := client.Entitlements(cmd.Context())
			if err != nil {
				return err
			}
			if out.Format == "json" {
				return output.JSON(g.Streams().Out, all)
			}
			var features []feature
			for _, name := range slices.Sorted(maps.Keys(all.Features)) {
				features = append(features, feature{name, all.Features[name]})
			}
			return out.Print(g.Streams().Out, features)
		},
	}
	out.Flags(list)
	cmd := &cobra.Command{Use: "features", Short: "List features of the server", Example: "  coder features list"}
	cmd.AddCommand(list)
	return cmd
}

func licensesCmd(g *global.Flags) *cobra.Command {
	return output.Absent{
		Name: "licenses", Things: "licenses", Reason: "this server needs no license",
		Remedy: "Every feature is free: coder features list",
		Verbs:  []string{"add", "delete"},
	}.Command(g.Streams)
}

func oidcClaimsCmd(g *global.Flags) *cobra.Command {
	type claim struct{ name, value string }
	out := output.List[claim]{Columns: []output.Column[claim]{
		output.Col("key", func(c claim) string { return c.name }),
		output.Col("value", func(c claim) string { return c.value }),
	}}
	cmd := &cobra.Command{
		Use:     "oidc-claims",
		Short:   "Show your claims at the identity provider, as of your last sign-in",
		Example: `  coder users oidc-claims -o json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			found, err := client.OIDCClaims(cmd.Context())
			if err != nil {
				return err
			}
			if out.Format == "json" {
				return output.JSON(g.Streams().Out, found)
			}
			var claims []claim
			for name, value := range found.Claims {
				claims = append(claims, claim{name, string(value)})
			}
			slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.name, b.name) })
			return out.Print(g.Streams().Out, claims)
		},
	}
	out.Flags(cmd)
	return cmd
}
