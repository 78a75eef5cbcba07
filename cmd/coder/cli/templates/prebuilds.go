package templates

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// Prebuilds returns the command for prebuilt workspaces.
func Prebuilds(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "prebuilds", Aliases: []string{"prebuild"}, Short: "Show, replace, pause and resume prebuilt workspaces",
		Long: `Show, replace, pause and resume prebuilt workspaces. While they are paused, the server neither creates nor deletes any, for example because a template
asks for too many. Users still get those that exist. Resuming also tries again what failed too often.`,
		Example: `  coder prebuilds list docker
  coder prebuilds pause
  coder prebuilds resume`,
	}
	cmd.AddCommand(
		prebuildsListCmd(g),
		prebuildsInvalidateCmd(g),
		prebuildsSettingCmd(g, "pause", "Stop creating and deleting prebuilt workspaces", true,
			"Prebuilt workspaces are paused."),
		prebuildsSettingCmd(g, "resume", "Create and delete prebuilt workspaces again", false,
			"Prebuilt workspaces are created and deleted again."),
	)
	return cmd
}

func prebuildsListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.TemplatePrebuilds]{Columns: []output.Column[sdk.TemplatePrebuilds]{
		output.Col("preset", func(p sdk.TemplatePrebuilds) string { return p.PresetName }),
		output.Col("desired", func(p sdk.TemplatePrebuilds) string { return strconv.Itoa(p.Desired) }),
		output.Col("running", func(p sdk.TemplatePrebuilds) string { return strconv.Itoa(p.Running) }),
		output.Col("ready", func(p sdk.TemplatePrebuilds) string { return strconv.Itoa(p.Eligible) }),
		output.Col("claims", func(p sdk.TemplatePrebuilds) string {
			return map[sdk.PrebuildClaims]string{
				sdk.ClaimsInstant: "instant", sdk.ClaimsWait: "wait for their build",
			}[p.Claims]
		}),
		output.Col("explanation", func(p sdk.TemplatePrebuilds) string { return p.Explanation }),
		output.Col("reasons", func(p sdk.TemplatePrebuilds) string { return strings.Join(p.ClaimWaits, "; ") }),
	}, Initial: []string{"preset", "desired", "running", "ready", "claims"}}
	var org organization.Flag
	cmd := &cobra.Command{
		Use: "list TEMPLATE", Aliases: []string{"ls"},
		Short: "List a template's prebuilt workspaces by preset, and what their claims wait for",
		Long: `List how many prebuilt workspaces each preset of a template's active version has, what keeps the server from having more, and why claims wait
for their build, as the last prebuilt workspace found out.`,
		Example: "  coder prebuilds list docker",
		Args:    flags.Argument("template"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			t, err := org.Template(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			presets, err := client.TemplatePrebuilds(cmd.Context(), t.ID)
			if err != nil {
				return err
			}
			stderr := g.Streams().Err
			if len(presets) == 0 {
				fmt.Fprintf(stderr, "No preset of %s has prebuilt workspaces.\n", t.Name)
			}
			if err := out.Print(g.Streams().Out, presets); err != nil {
				return err
			}
			for _, p := range presets {
				if p.Explanation != "" {
					fmt.Fprintf(stderr, "%s: %s\n", p.PresetName, p.Explanation)
				}
				for _, reason := range p.ClaimWaits {
					fmt.Fprintf(stderr, "%s: claims wait for their build because of %s\n", p.PresetName,
						tty.Clean(reason))
				}
			}
			return nil
		},
	}
	out.Flags(cmd)
	org.AddLookup(cmd)
	return cmd
}

func prebuildsInvalidateCmd(g *global.Flags) *cobra.Command {
	var org organization.Flag
	cmd := &cobra.Command{
		Use: "invalidate TEMPLATE", Short: "Replace a template's prebuilt workspaces",
		Long: `Replace all prebuilt workspaces of a template's active version, for example because an image that they run has changed. From now on, no user
gets one of those that exist. Workspaces that users have already stay.`,
		Example: "  coder prebuilds invalidate docker",
		Args:    flags.Argument("template"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			t, err := org.Template(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			done, err := client.InvalidatePrebuilds(cmd.Context(), t.ID)
			if err != nil {
				return err
			}
			stderr := g.Streams().Err
			if len(done.Invalidated) == 0 {
				fmt.Fprintf(stderr, "No preset of %s has prebuilt workspaces.\n", t.Name)
			}
			for _, p := range done.Invalidated {
				fmt.Fprintf(stderr, "The prebuilt workspaces of %s are replaced.\n", tty.Clean(p.PresetName))
			}
			return nil
		},
	}
	org.AddLookup(cmd)
	return cmd
}

func prebuildsSettingCmd(g *global.Flags, use, short string, pause bool, done string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		Example: "  coder prebuilds " + use,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := client.UpdatePrebuildsSettings(cmd.Context(), sdk.PrebuildsSettings{
				ReconciliationPaused: pause,
			}); err != nil {
				return err
			}
			fmt.Fprintln(g.Streams().Err, done)
			return nil
		},
	}
}
