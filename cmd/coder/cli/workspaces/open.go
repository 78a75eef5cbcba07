package workspaces

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/browser"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/appaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func openCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "open",
		Short:   "Open a workspace in an editor, or one of its apps",
		Example: "  coder open vscode dev\n  coder open app dev code-server",
	}
	cmd.AddCommand(openVSCodeCmd(g), openAppCmd(g))
	return cmd
}

type openEditorOptions struct {
	scheme        string
	generateToken bool
	printOnly     bool
}

// editors maps the names of editors that have the plugin "Coder Remote" to the schemes of their addresses.
var editors = map[string]string{
	"vscode": "vscode", "vscode-insiders": "vscode-insiders", "vscodium": "vscodium", "cursor": "cursor", "windsurf": "windsurf",
}

// editorZed is the one editor that connects by the hosts of the SSH configuration.
const editorZed = "zed"

func openVSCodeCmd(g *global.Flags) *cobra.Command {
	var opts openEditorOptions
	cmd := &cobra.Command{
		Use:   "vscode WORKSPACE [FOLDER]",
		Short: "Open a workspace in VS Code or an editor that derives from it",
		Long: `Open a workspace in VS Code or an editor that derives from it. The editor needs the extension "Coder Remote", which asks you to
sign in once; with --generate-token it gets a session of its own. Zed needs "coder config-ssh" instead. FOLDER is relative to the agent's folder,
which is the default.`,
		Example: `  coder open vscode dev
  coder open vscode dev project --editor cursor`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return runOpenVSCode(cmd.Context(), g, args, opts) },
	}
	cmd.Flags().StringVar(&opts.scheme, "editor", "vscode",
		"editor: vscode, vscode-insiders, vscodium, cursor, windsurf or zed")
	cmd.Flags().BoolVar(&opts.generateToken, "generate-token", false,
		"create a session for the editor and pass it in the address")
	cmd.Flags().BoolVar(&opts.printOnly, "print", false, "print the address instead of opening it")
	return cmd
}

func runOpenVSCode(ctx context.Context, g *global.Flags, args []string, opts openEditorOptions) error {
	scheme, ok := editors[opts.scheme]
	if !ok && opts.scheme != editorZed {
		return exit.Try(fault.New(fault.Invalid, "the editor %q is unknown", opts.scheme),
			"Use vscode, vscode-insiders, vscodium, cursor, windsurf or zed.")
	}
	client, ws, agent, err := findAgent(ctx, g, args[0])
	if err != nil {
		return err
	}
	if opts.scheme == editorZed {
		return openZed(ctx, g, client, ws, agent, args[1:], opts.printOnly)
	}
	query := url.Values{
		"owner": {ws.OwnerName}, "workspace": {ws.Name}, "agent": {agent.Name}, "url": {client.URL().String()}, "openRecent": {"true"},
	}
	folder := ""
	if len(args) > 1 {
		folder = args[1]
	}
	if folder, err = folderOf(agent, folder); err != nil {
		return err
	}
	if folder != "" {
		query.Set("folder", folder)
	}
	if opts.generateToken {
		key, err := client.CreateAPIKey(ctx, sdk.Me)
		if err != nil {
			return err
		}
		query.Set("token", key.Key)
	}
	return openAddress(ctx, g, scheme+"://coder.coder-remote/open?"+query.Encode(), "the editor", opts.printOnly)
}

// zedHost matches a host of a workspace.
var zedHost = lazyregexp.New(`^[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*$`)

// openZed opens a folder on the agent's host in the SSH configuration.
func openZed(ctx context.Context, g *global.Flags, client *sdk.Client, ws sdk.Workspace, agent sdk.WorkspaceAgent, folder []string, printOnly bool) error {
	ssh, err := client.SSHConfig(ctx)
	if err != nil {
		return err
	}
	host := ssh.HostnamePrefix + ws.OwnerName + "--" + ws.Name + "." + agent.Name
	if ssh.HostnameSuffix != "" {
		host = agent.Name + "." + ws.Name + "." + ws.OwnerName + "." + ssh.HostnameSuffix
	}
	if !zedHost().MatchString(host) { // the editor passes it to OpenSSH, which takes a leading dash for an option
		return fault.New(fault.Invalid, "the server names the host %q, which is not a name", host)
	}
	path, err := folderOf(agent, strings.Join(folder, ""))
	if err != nil {
		return err
	}
	address := url.URL{Scheme: editorZed, Host: "ssh", Path: "/" + host + path}
	return openAddress(ctx, g, address.String(), "the editor", printOnly)
}

// folderOf returns the folder that the editor opens; "" if only the agent will know.
func folderOf(agent sdk.WorkspaceAgent, folder string) (string, error) {
	base := agent.ExpandedDirectory
	if agent.OperatingSystem == "windows" || path.IsAbs(folder) || folder == "" {
		if folder == "" {
			return base, nil
		}
		return folder, nil
	}
	if base == "" {
		return "", exit.Try(fault.New(fault.Invalid, "the folder of the agent %s is not known yet", agent.Name).
			WithDetail("it has not connected"),
			"Use an absolute path, or try again when the workspace is ready.")
	}
	return path.Join(base, folder), nil
}

func openAppCmd(g *global.Flags) *cobra.Command {
	var printOnly bool
	var region string
	cmd := &cobra.Command{
		Use:   "app WORKSPACE [APP]",
		Short: "Open an app of a workspace in the browser",
		Long:  `Open an app of a workspace in the browser. Without APP it prints the names of the workspace's apps.`,
		Example: `  coder open app dev
  coder open app dev code-server
  coder open app dev code-server --region sydney`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, ws, agent, err := findAgent(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return printApps(g, ws, agent)
			}
			address, err := appAddress(cmd.Context(), client, ws, agent, args[1], region)
			if err != nil {
				return err
			}
			return openAddress(cmd.Context(), g, address, "the app", printOnly)
		},
	}
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the address instead of opening it")
	cmd.Flags().StringVar(&region, "region", primaryRegion,
		"region at which to open the app, one of coder wsproxy ls; primary is the server")
	return cmd
}

// primaryRegion is the name of the servers' own region.
const primaryRegion = "primary"

// appHosts are where a region serves apps: by path below base, and at a host of each app. host is a pattern with one
// "*", or "".
type appHosts struct {
	base *url.URL
	host string
}

// appHostsOf returns where the apps of the named region are.
func appHostsOf(ctx context.Context, client *sdk.Client, name string) (appHosts, error) {
	if name == primaryRegion {
		host, err := client.ApplicationsHost(ctx)
		return appHosts{client.URL(), host.Host}, err
	}
	all, err := client.Regions(ctx)
	if err != nil {
		return appHosts{}, err
	}
	names := make([]string, len(all.Regions))
	for i, r := range all.Regions {
		if names[i] = r.Name; r.Name != name {
			continue
		}
		base, err := url.Parse(r.PathAppURL)
		if err != nil || !slices.Contains([]string{"http", "https"}, base.Scheme) || base.Host == "" {
			return appHosts{}, fault.New(fault.Unavailable, "the region %q serves no apps", name)
		}
		return appHosts{base, r.WildcardHostname}, nil
	}
	return appHosts{}, exit.Try(fault.New(fault.NotFound, "there is no region %q", name),
		"The regions are %s.", strings.Join(names, ", "))
}

// findAgent returns a workspace and the agent that its name means.
func findAgent(
	ctx context.Context, g *global.Flags, text string,
) (*sdk.Client, sdk.Workspace, sdk.WorkspaceAgent, error) {
	client, err := g.Client(ctx)
	if err != nil {
		return nil, sdk.Workspace{}, sdk.WorkspaceAgent{}, err
	}
	ws, name, err := target.Find(ctx, client, text)
	if err != nil {
		return client, ws, sdk.WorkspaceAgent{}, err
	}
	agent, err := target.ChooseAgent(ws, name.Agent)
	return client, ws, agent, err
}

func slugs(agent sdk.WorkspaceAgent) []string {
	var names []string
	for _, app := range agent.Apps {
		names = append(names, app.Slug)
	}
	slices.Sort(names)
	return names
}

func printApps(g *global.Flags, ws sdk.Workspace, agent sdk.WorkspaceAgent) error {
	names := slugs(agent)
	if len(names) == 0 {
		fmt.Fprintf(g.Streams().Err, "The workspace %s has no apps.\n", ws.FullName())
		return nil
	}
	_, err := fmt.Fprintln(g.Streams().Out, strings.Join(names, "\n"))
	return err
}

// appAddress returns where an app opens in a browser.
func appAddress(
	ctx context.Context, client *sdk.Client, ws sdk.Workspace, agent sdk.WorkspaceAgent, slug, region string,
) (string, error) {
	at := slices.IndexFunc(agent.Apps, func(app sdk.WorkspaceApp) bool { return app.Slug == slug })
	if at < 0 {
		hint := "coder show " + shell.Word(ws.Name)
		if names := slugs(agent); len(names) > 0 {
			hint = "Its apps are " + strings.Join(names, ", ") + "."
		}
		return "", exit.Try(fault.New(fault.NotFound, "the workspace %s has no app %q", ws.FullName(), slug), "%s",
			hint)
	}
	app := agent.Apps[at]
	base := client.URL().JoinPath("@"+ws.OwnerName, ws.Name+"."+agent.Name)
	switch {
	case app.External:
		return externalAddress(ctx, client, app)
	case app.Command != "":
		terminal := base.JoinPath("terminal")
		terminal.RawQuery = url.Values{"command": {app.Command}}.Encode()
		return terminal.String(), nil
	case !app.Subdomain && region == primaryRegion:
		return base.JoinPath("apps", app.Slug).String() + "/", nil
	}
	hosts, err := appHostsOf(ctx, client, region)
	if err != nil {
		return "", err
	}
	if !app.Subdomain {
		return hosts.base.JoinPath("@"+ws.OwnerName, ws.Name+"."+agent.Name, "apps", app.Slug).String() + "/", nil
	}
	if hosts.host == "" {
		return "", exit.Try(fault.New(fault.Unavailable,
			"the app %q needs a host name of its own, and the server has none for apps", slug),
			"Ask the server's operator to set --wildcard-access-url.")
	}
	own := url.URL{Scheme: hosts.base.Scheme, Host: strings.Replace(hosts.host, "*", app.SubdomainName, 1), Path: "/"}
	if port := hosts.base.Port(); port != "" && own.Port() == "" {
		own.Host += ":" + port
	}
	return own.String(), nil
}

// Schemes of external apps: websites and other hosts, and programs on this machine that open workspaces. Any other
// could run a program with what the address says. The dashboard has the same.
var (
	hostSchemes    = []string{"http", "https", "mailto", "ssh", "sftp", "rdp", "vnc"}
	programSchemes = []string{
		"coder", "vscode", "vscode-insiders", "vscodium", "cursor", "windsurf", "zed", "jetbrains", "jetbrains-gateway", "fleet", "kiro", "antigravity",
		"trae", "positron",
	}
)

// externalAddress returns the address of an external app, which the template's author chose. Only programs on this
// machine get a token: with any other scheme it would go to a host that the address names.
func externalAddress(ctx context.Context, client *sdk.Client, app sdk.WorkspaceApp) (string, error) {
	address := appaddr.Escape(app.URL)
	u, err := url.Parse(address)
	if err != nil || !slices.Contains(hostSchemes, u.Scheme) && !slices.Contains(programSchemes, u.Scheme) ||
		appaddr.NamesOption(address) {
		return "", fault.New(fault.Invalid, "the app %q has an address that cannot be opened: %q", app.Slug, app.URL)
	}
	if !slices.Contains(programSchemes, u.Scheme) || !strings.Contains(address, appaddr.TokenMark) {
		return address, nil
	}
	key, err := client.CreateAPIKey(ctx, sdk.Me)
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(address, appaddr.TokenMark, url.QueryEscape(key.Key)), nil
}

// openAddress opens an address, or prints it where there is no desktop.
func openAddress(ctx context.Context, g *global.Flags, address, what string, printOnly bool) error {
	if printOnly || !browser.Open(ctx, address) {
		if !printOnly {
			fmt.Fprintf(g.Streams().Err, "This machine has no desktop. Open this address where %s is:\n", what)
		}
		_, err := fmt.Fprintln(g.Streams().Out, address)
		return err
	}
	fmt.Fprintf(g.Streams().Err, "Opening %s.\n", what)
	return nil
}
