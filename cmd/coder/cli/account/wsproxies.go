package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func wsproxyCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "wsproxy", Aliases: []string{"workspace-proxy"}, Short: "Manage region proxies",
		Long: `Manage region proxies: relays near the workspaces and users of a region. A proxy dials out to the server with a token. While it is
connected, nodes of the mesh that are near it use its relay instead of the server's. "coder wsproxy server" runs a proxy.
Only owners manage proxies.`,
		Example: "  coder wsproxy create eu --display-name Frankfurt",
	}
	cmd.AddCommand(wsproxyCreateCmd(g), wsproxyListCmd(g), wsproxyEditCmd(g), wsproxyTokenCmd(g), wsproxyDeleteCmd(g))
	return cmd
}

const tryProxies = "coder wsproxy ls"

func wsproxyCreateCmd(g *global.Flags) *cobra.Command {
	var req sdk.CreateWorkspaceProxyRequest
	var tokenOnly bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a region proxy and print its token once",
		Long: `Create a region proxy and print its token on standard output. It cannot be read again. Run the proxy with it:
CODER_PROXY_SESSION_TOKEN=… coder wsproxy server --primary-access-url URL --access-url URL`,
		Example: `  coder wsproxy create eu --display-name Frankfurt
  coder wsproxy create eu > token`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if req.Name != "" && req.Name != args[0] {
					return fault.New(fault.Invalid, "the proxy is named twice: %s and --name %s", args[0], req.Name)
				}
				req.Name = args[0]
			}
			if req.Name == "" {
				return exit.Try(fault.New(fault.Invalid, "the proxy's name is missing"), "coder wsproxy create NAME")
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			made, err := client.CreateWorkspaceProxy(cmd.Context(), req)
			if err != nil {
				return exit.Try(err, tryProxies)
			}
			if tokenOnly {
				_, err := fmt.Fprintln(g.Streams().Out, made.Token)
				return err
			}
			return printToken(g, made)
		},
	}
	cmd.Flags().StringVar(&req.Name, "name", "", "name of the proxy, instead of the argument")
	cmd.Flags().BoolVar(&tokenOnly, "only-token", false, "print only the token, and no words on standard error")
	cmd.Flags().StringVar(&req.DisplayName, "display-name", "", "name that users see (default the name)")
	cmd.Flags().StringVar(&req.Icon, "icon", "", "URL or path of the icon that users see")
	return cmd
}

func printToken(g *global.Flags, made sdk.WorkspaceProxyResponse) error {
	fmt.Fprintf(g.Streams().Err, "This is the token of the region proxy %s. It will not be shown again:\n",
		made.Proxy.Name)
	_, err := fmt.Fprintln(g.Streams().Out, made.Token)
	return err
}

func wsproxyListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.WorkspaceProxy]{Columns: []output.Column[sdk.WorkspaceProxy]{
		output.Col("name", func(p sdk.WorkspaceProxy) string { return p.Name }),
		output.Col("display name", func(p sdk.WorkspaceProxy) string { return p.DisplayName }),
		output.Col("url", func(p sdk.WorkspaceProxy) string { return p.URL }),
		output.Col("status", func(p sdk.WorkspaceProxy) string { return string(p.Status.Status) }),
		output.Col("version", func(p sdk.WorkspaceProxy) string { return p.Version }),
		output.Col("id", func(p sdk.WorkspaceProxy) string { return p.ID.String() }),
	}, Initial: []string{"name", "display name", "url", "status", "version"}}
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List region proxies and their state",
		Example: `  coder wsproxy ls`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			list, err := client.WorkspaceProxies(cmd.Context())
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, list.Regions)
		},
	}
	out.Flags(cmd)
	return cmd
}

func wsproxyEditCmd(g *global.Flags) *cobra.Command {
	var req sdk.PatchWorkspaceProxyRequest
	cmd := &cobra.Command{
		Use:     "edit NAME",
		Short:   "Change a region proxy's names and icon",
		Example: `  coder wsproxy edit eu --name eu-west --display-name Frankfurt`,
		Args:    flags.Argument("proxy's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if req == (sdk.PatchWorkspaceProxyRequest{}) {
				return exit.Try(fault.New(fault.Invalid, "there is nothing to change"), "coder wsproxy edit --help")
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			changed, err := client.PatchWorkspaceProxy(cmd.Context(), args[0], req)
			if err != nil {
				return exit.Try(err, tryProxies)
			}
			fmt.Fprintf(g.Streams().Err, "The region proxy %s has been changed.\n", changed.Proxy.Name)
			return nil
		},
	}
	cmd.Flags().StringVar(&req.Name, "name", "", "new name")
	cmd.Flags().StringVar(&req.DisplayName, "display-name", "", "new name that users see")
	cmd.Flags().StringVar(&req.Icon, "icon", "", "new icon")
	return cmd
}

func wsproxyTokenCmd(g *global.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "regenerate-token NAME",
		Short:   "Replace a region proxy's token and disconnect it",
		Long:    "Replace a region proxy's token and print the new one on standard output. The proxy with the old token is disconnected at once and stops.",
		Example: `  coder wsproxy regenerate-token eu > token`,
		Args:    flags.Argument("proxy's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, "Replace the token of "+args[0]+" and disconnect it?", false); err != nil {
				return err
			}
			made, err := client.PatchWorkspaceProxy(cmd.Context(), args[0], sdk.PatchWorkspaceProxyRequest{
				RegenerateToken: true,
			})
			if err != nil {
				return exit.Try(err, tryProxies)
			}
			return printToken(g, made)
		},
	}
	flags.Yes(cmd, &yes)
	return cmd
}

func wsproxyDeleteCmd(g *global.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Aliases: []string{"rm"},
		Short:   "Delete a region proxy and disconnect it",
		Long:    "Delete a region proxy and disconnect it at once. Nodes that use its relay move to another region.",
		Example: `  coder wsproxy delete eu`,
		Args:    flags.Argument("proxy's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, "Delete the region proxy "+args[0]+" and disconnect it?", false); err != nil {
				return err
			}
			if err := client.DeleteWorkspaceProxy(cmd.Context(), args[0]); err != nil {
				return exit.Try(err, tryProxies)
			}
			fmt.Fprintf(g.Streams().Err, "The region proxy %s has been deleted.\n", args[0])
			return nil
		},
	}
	flags.Yes(cmd, &yes)
	return cmd
}
