package cli

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestTerminalInContainer: --container names dev containers of the workspace only, and the error those that there are.
func TestTerminalInContainer(t *testing.T) {
	t.Parallel()
	ws := testWorkspace
	main, other := uuid.New(), uuid.New()
	ws.LatestBuild.Transition, ws.LatestBuild.Job.Status = sdk.TransitionStart, sdk.JobSucceeded
	ws.LatestBuild.Resources = []sdk.WorkspaceResource{{Agents: []sdk.WorkspaceAgent{
		{ID: main, Name: "main"}, {ID: other, Name: "other"}, {ID: uuid.New(), Name: "app", ParentID: &main},
	}}}
	at := []string{"--url", newAPI(t, map[string]any{"GET users/me/workspace/dev": ws}).url, "--token", "t", "exp", "rpty"}
	for line, want := range map[string]string{
		"dev --container ap":         "coder exp rpty dev --container app",
		"dev --container main":       "coder exp rpty dev --container app",
		"dev.other --container app":  "coder exp rpty dev.other",
		"dev --container app -r one": "",
	} {
		r := run(t, "", "", append(at, strings.Fields(line)...)...)
		hint, _ := exit.Hint(r.fault)
		if code := fault.CodeOf(r.fault); code != fault.NotFound && code != fault.Invalid || hint != want {
			t.Errorf("%s: %v, hint %q, want %q", line, r.fault, hint, want)
		}
	}
}
