package workspaces

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

func showCmd(g *global.Flags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "show WORKSPACE",
		Short:   "Show a workspace's resources and agents",
		Example: `  coder show dev`,
		Args:    flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, ws, err := find(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			if format == "json" {
				return output.JSON(g.Streams().Out, ws)
			}
			if format != "table" {
				return output.BadFormat(format, "table or json")
			}
			paths, err := readPaths(cmd.Context(), client)
			if err != nil {
				noPaths(g, err)
			}
			return printWorkspace(g, ws, paths)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	cmd.Flags().Bool("details", true, "has no effect: details are always shown")
	cmd.Flags().Lookup("details").Hidden = true // scripts pass it
	return cmd
}

// printUnsettled lists the resources of interrupted builds.
func printUnsettled(out io.Writer, b sdk.WorkspaceBuild) {
	if len(b.UnknownResources) > 0 {
		fmt.Fprintf(out, "May exist outside of the Terraform state: %s\n", strings.Join(b.UnknownResources, ", "))
	}
	if len(b.TaintedResources) > 0 {
		fmt.Fprintf(out, "Incomplete, replaced by the next build: %s\n", strings.Join(b.TaintedResources, ", "))
	}
}

func printWorkspace(g *global.Flags, ws sdk.Workspace, paths clientPaths) error {
	out := g.Streams().Out
	fmt.Fprintf(out, "%s: %s, build %d of %s, version %s\n", ws.FullName(), statusOf(ws), ws.LatestBuild.BuildNumber,
		ws.TemplateName, ws.LatestBuild.TemplateVersionName)
	if ws.Outdated {
		fmt.Fprintf(out, "A newer version of the template is active: coder update %s\n", shell.Word(ws.Name))
	}
	if line := waitingLine(ws.LatestBuild.Job); line != "" {
		fmt.Fprintln(out, line)
	}
	if ws.LatestBuild.Job.Error != "" {
		fmt.Fprintf(out, "The build failed: %s\n", tty.Clean(ws.LatestBuild.Job.Error))
	}
	printUnsettled(out, ws.LatestBuild)
	if b := ws.LatestBuild; b.CredentialsWithheld && b.Transition == sdk.TransitionStart {
		fmt.Fprintf(out, "The workspace has no credentials of %[1]s, because %[1]s has not started a workspace of this template themselves, or has revoked that.\nTo change this, %[1]s runs: coder restart %[2]s\n",
			ws.OwnerName, shell.Word(ws.Name))
	}
	printConsequences(out, ws)
	fmt.Fprintln(out)
	table := tty.Table{Header: []string{"resource", "agent", "status", "version", "directory", "access"}}
	for _, r := range ws.LatestBuild.Resources {
		if r.Hide && len(r.Agents) == 0 {
			continue
		}
		label := r.Type + "." + r.Name
		if len(r.Agents) == 0 {
			table.Add(label)
		}
		for _, agent := range byParent(r.Agents) {
			status := string(agent.Status)
			if agent.ParentID != nil && agent.Status != sdk.AgentConnected && !agent.Health.Healthy {
				status, _, _ = strings.Cut(agent.Health.Reason, ":") // the dev container's
			}
			if agent.Status == sdk.AgentConnected {
				status += ", " + string(agent.LifecycleState)
			}
			directory := agent.ExpandedDirectory
			if directory == "" {
				directory = agent.Directory
			}
			name := ws.Name
			if len(ws.LatestBuild.OuterAgents()) > 1 || agent.ParentID != nil {
				name += "." + agent.Name
			}
			shown := agent.Name
			if agent.ParentID != nil {
				shown = "└ " + shown
			}
			table.Add(label, shown, status, agent.Version, directory, "coder ssh "+shell.Word(name))
		}
	}
	table.Style = output.StatusStyle(out, table.Header)
	if err := table.Write(out); err != nil {
		return err
	}
	for _, agent := range ws.LatestBuild.Agents() {
		if ws.LatestBuild.Transition == sdk.TransitionStart && !agent.Health.Healthy {
			fmt.Fprintf(out, "\n%s: %s\n", agent.Name, tty.Clean(agent.Health.String()))
			if agent.TroubleshootingURL != "" {
				fmt.Fprintf(out, "See %s\n", agent.TroubleshootingURL)
			}
		}
		for _, m := range agent.Over() {
			fmt.Fprintf(out, "\n%s: %s\n", agent.Name, tty.Clean(m.Text()))
		}
		if c := agent.Connections; c != nil && c.Any() > 0 {
			fmt.Fprintf(out, "\n%s is used by: %s\n", agent.Name, connectionsText(*c))
		}
		if text := paths.to(agent.ID); text != "" {
			fmt.Fprintf(out, "\n%s is reached by: %s\n", agent.Name, text)
		}
	}
	return nil
}

// byParent returns the agents with those of dev containers after the agents that start them.
func byParent(agents []sdk.WorkspaceAgent) (sorted []sdk.WorkspaceAgent) {
	for _, a := range agents {
		if a.ParentID != nil {
			continue
		}
		sorted = append(sorted, a)
		for _, inside := range agents {
			if inside.ParentID != nil && *inside.ParentID == a.ID {
				sorted = append(sorted, inside)
			}
		}
	}
	return sorted
}

// connectionsText lists the number of connections of each kind.
func connectionsText(c sdk.AgentConnections) string {
	var parts []string
	for _, kind := range []struct {
		n    uint32
		name string
	}{{c.SSH, "SSH"}, {c.VSCode, "VS Code"}, {c.JetBrains, "JetBrains"}, {c.ReconnectingPTY, "terminal"}, {c.PortForward, "forwarded port"}} {
		if kind.n > 0 {
			parts = append(parts, fmt.Sprintf("%d × %s", kind.n, kind.name))
		}
	}
	return strings.Join(parts, ", ")
}
