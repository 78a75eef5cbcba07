package workspaces

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// clientPaths holds how clients reach agents, by agent.
type clientPaths map[uuid.UUID][]sdk.MeshClient

// readPaths asks the server, which asks the agents that have clients. It blocks for at most a second.
func readPaths(ctx context.Context, client *sdk.Client) (clientPaths, error) {
	mesh, err := client.MeshPeers(ctx)
	if err != nil {
		return nil, fmt.Errorf("read paths: %w", err)
	}
	paths := make(clientPaths)
	for _, p := range mesh.Peers {
		if len(p.Clients) > 0 {
			paths[p.ID] = p.Clients
		}
	}
	return paths, nil
}

// noPaths prints why no paths are shown.
func noPaths(g *global.Flags, err error) {
	fmt.Fprintln(g.Streams().Err, "Cannot read how clients reach the workspaces:", err)
}

// of describes how clients reach a workspace, such as "direct 12ms, relayed 80ms", or returns "" without clients.
func (p clientPaths) of(ws sdk.Workspace) string {
	var parts []string
	for _, agent := range ws.LatestBuild.Agents() {
		if text := p.to(agent.ID); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", ")
}

// to is like of, for one agent.
func (p clientPaths) to(agent uuid.UUID) string {
	parts := make([]string, len(p[agent]))
	for i, c := range p[agent] {
		parts[i] = pathText(c)
	}
	return strings.Join(parts, ", ")
}

func pathText(c sdk.MeshClient) string {
	if c.Path == sdk.PathUnknown {
		return "idle"
	}
	text := string(c.Path)
	if c.LatencyMillis > 0 {
		text += " " + output.Latency(time.Duration(c.LatencyMillis*float64(time.Millisecond)))
	}
	return text
}
