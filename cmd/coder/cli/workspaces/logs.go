package workspaces

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

type logsOptions struct {
	follow bool
	number int // of the build, as for findBuild
}

func logsCmd(g *global.Flags) *cobra.Command {
	var opts logsOptions
	cmd := &cobra.Command{
		Use:   "logs WORKSPACE",
		Short: "Show build and agent logs",
		Example: `  coder logs dev
  coder logs dev -f
  coder logs dev -n -1    # the build before the latest`,
		Args: flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error { return runLogs(g, cmd, args[0], &opts) },
	}
	cmd.Flags().BoolVarP(&opts.follow, "follow", "f", false, "follow new output (Ctrl-C to stop)")
	cmd.Flags().IntVarP(&opts.number, "build-number", "n", 0,
		"number of the build; negative numbers count back from the latest (default the latest)")
	return cmd
}

func runLogs(g *global.Flags, cmd *cobra.Command, name string, opts *logsOptions) error {
	ctx := cmd.Context()
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	ws, build, err := findBuild(cmd, client, name, opts.number)
	if err != nil {
		return err
	}
	if !opts.follow {
		lines, err := client.BuildLogs(ctx, build.ID, 0)
		if err != nil {
			return err
		}
		for _, line := range lines {
			if err := printJobLog(g, line); err != nil {
				return err
			}
		}
	} else {
		for line, err := range client.FollowBuildLogs(ctx, build.ID, 0) {
			if err != nil {
				return err
			}
			if err := printJobLog(g, line); err != nil {
				return err
			}
		}
		// A build that has ended may have other agents than when it was requested.
		if build, err = client.Build(ctx, build.ID); err != nil {
			return err
		}
	}
	// Agents keep their id across builds, so the current output of their scripts belongs to the latest build.
	if build.ID != ws.LatestBuild.ID {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, agent := range build.Agents() {
		if !opts.follow {
			if err := agentLogs(ctx, g, client, agent); err != nil {
				return err
			}
			if agent.Status != sdk.AgentConnected && !agent.Health.Healthy {
				fmt.Fprintf(g.Streams().Err, "%s: %s\n", agent.Name, tty.Clean(agent.Health.String()))
			}
			continue
		}
		group.Go(func() error { return followAgentLogs(ctx, g, client, agent) })
	}
	return group.Wait()
}

func printJobLog(g *global.Flags, line sdk.JobLog) error {
	_, err := fmt.Fprintf(g.Streams().Out, "%s [%s] %s: %s\n", line.CreatedAt.Format(time.RFC3339), line.Level,
		tty.Clean(line.Stage), tty.Clean(line.Output))
	return err
}

func agentLogs(ctx context.Context, g *global.Flags, client *sdk.Client, agent sdk.WorkspaceAgent) error {
	lines, err := client.AgentLogs(ctx, agent.ID, 0)
	if err != nil {
		return err
	}
	return printAgentLogs(g, agent, lines)
}

func followAgentLogs(ctx context.Context, g *global.Flags, client *sdk.Client, agent sdk.WorkspaceAgent) error {
	for lines, err := range client.FollowAgentLogs(ctx, agent.ID, 0) {
		if err != nil {
			return err
		}
		if err := printAgentLogs(g, agent, lines); err != nil {
			return err
		}
	}
	return nil
}

// printAgentLogs writes each batch with one call, so that agents' lines do not mix within a line.
func printAgentLogs(g *global.Flags, agent sdk.WorkspaceAgent, lines []sdk.AgentLog) error {
	sources := map[string]string{}
	for _, s := range agent.LogSources {
		sources[s.ID.String()] = s.DisplayName
	}
	var text []byte
	for _, line := range lines {
		source := sources[line.SourceID.String()]
		if source == "" {
			source = "log"
		}
		text = fmt.Appendf(text, "%s [%s] %s, %s: %s\n", line.CreatedAt.Format(time.RFC3339), line.Level, agent.Name,
			tty.Clean(source), tty.CleanColor(line.Output))
	}
	if len(text) == 0 {
		return nil
	}
	_, err := g.Streams().Out.Write(text)
	return err
}
