package workspaces

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/statefile"
)

// maxStates is how many builds state list and state restore examine: each costs a download of its state. The server keeps ten states by
// default.
const maxStates = 20

// keptState is a build with what is left of its state.
type keptState struct {
	Build     int32         `json:"build_number"`
	Made      string        `json:"transition"`
	Job       sdk.JobStatus `json:"job_status"`
	Lineage   string        `json:"lineage,omitempty"`
	Serial    uint64        `json:"serial"`
	Resources int           `json:"resources"`
	Problem   string        `json:"problem,omitempty"` // why the state cannot be used
	text      []byte
	build     sdk.WorkspaceBuild
}

// restorable reports whether a build left a state that later builds can start from.
func (k keptState) restorable() bool { return k.Problem == "" && k.Job == sdk.JobSucceeded }

func stateListCmd(g *global.Flags) *cobra.Command {
	out := output.List[keptState]{Columns: []output.Column[keptState]{
		output.Col("build", func(k keptState) string { return strconv.Itoa(int(k.Build)) }),
		output.Col("transition", func(k keptState) string { return k.Made }),
		output.Col("result", func(k keptState) string { return string(k.Job) }),
		output.Col("created", func(k keptState) string { return output.Ago(k.build.CreatedAt) }),
		output.Col("serial", func(k keptState) string { return strconv.FormatUint(k.Serial, 10) }),
		output.Col("resources", func(k keptState) string { return strconv.Itoa(k.Resources) }),
		output.Col("lineage", func(k keptState) string { return k.Lineage }),
		output.Col("problem", func(k keptState) string { return k.Problem }),
	}}
	cmd := &cobra.Command{
		Use:     "list WORKSPACE",
		Aliases: []string{"ls"},
		Short:   "List the states that the builds of a workspace left",
		Example: `  coder state list dev`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			_, kept, err := keptStates(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, kept)
		},
	}
	out.Flags(cmd)
	return cmd
}

// keptStates returns the states of the newest builds of a workspace, the newest first.
func keptStates(ctx context.Context, client *sdk.Client, name string) (sdk.Workspace, []keptState, error) {
	ws, _, err := target.Find(ctx, client, name)
	if err != nil {
		return ws, nil, err
	}
	builds, err := client.Builds(ctx, ws.ID)
	if err != nil {
		return ws, nil, err
	}
	slices.SortFunc(builds, func(a, b sdk.WorkspaceBuild) int { return cmp.Compare(b.BuildNumber, a.BuildNumber) })
	var kept []keptState
	for _, b := range builds[:min(len(builds), maxStates)] {
		k := keptState{Build: b.BuildNumber, Made: string(b.Transition), Job: b.Job.Status, build: b}
		var text bytes.Buffer
		err := client.BuildState(ctx, b.ID, &text)
		switch {
		case fault.CodeOf(err) == fault.NotFound:
			k.Problem = "removed"
		case fault.CodeOf(err) == fault.Conflict:
			k.Problem = err.Error() // its key is lost, or it is damaged
		case err != nil:
			return ws, nil, err
		case text.Len() == 0:
			k.Problem = "empty"
		default:
			head, err := statefile.Read(text.Bytes())
			if err != nil {
				k.Problem = err.Error()
			}
			k.text, k.Lineage, k.Serial, k.Resources = text.Bytes(), head.Lineage, head.Serial, head.Resources
		}
		kept = append(kept, k)
	}
	return ws, kept, nil
}

func stateRestoreCmd(g *global.Flags) *cobra.Command {
	opts := pushOptions{force: true} // a state of the workspace's own builds
	cmd := &cobra.Command{
		Use:   "restore WORKSPACE",
		Short: "Build the workspace from the state that an earlier build left",
		Long: `Build the workspace from the state that an earlier build left: by default, the newest successful one before the latest.
Resources that were created since are not in that state: no build deletes them.`,
		Example: `  coder state restore dev
  coder state restore dev --build 3`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runStateRestore(g, cmd, args[0], &opts) },
	}
	f := cmd.Flags()
	f.IntVarP(&opts.number, "build", "b", 0, "number of the build (default the newest successful one before the latest)")
	f.BoolVarP(&opts.noBuild, "no-build", "n", false, "store the state without building the workspace")
	flags.Yes(cmd, &opts.yes)
	return cmd
}

func runStateRestore(g *global.Flags, cmd *cobra.Command, name string, opts *pushOptions) error {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return err
	}
	ws, kept, err := keptStates(cmd.Context(), client, name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(kept, func(k keptState) bool {
		if opts.number != 0 {
			return int(k.Build) == opts.number
		}
		return k.Build != ws.LatestBuild.BuildNumber && k.restorable()
	})
	if i < 0 {
		return exit.Try(fault.New(fault.NotFound, "%s has no such state", ws.FullName()), "coder state list %s", ws.FullName())
	}
	if kept[i].Problem != "" {
		return exit.Try(fault.New(fault.Invalid, "the state of build %d cannot be used: %s", kept[i].Build, kept[i].Problem), "coder state list %s", ws.FullName())
	}
	what := fmt.Sprintf("the state of build %d (%d resources)", kept[i].Build, kept[i].Resources)
	if err := pushState(g, cmd, client, ws, ws.LatestBuild, kept[i].text, opts, what); err != nil {
		return err
	}
	fmt.Fprintf(g.Streams().Err, "Restored %s.\n", what)
	return nil
}
