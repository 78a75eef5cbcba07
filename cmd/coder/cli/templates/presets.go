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
)

func presetsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "presets", Aliases: []string{"preset"}, Short: "Show a template's presets", Example: "  coder templates presets list docker"}
	cmd.AddCommand(presetsListCmd(g))
	return cmd
}

func presetsListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.Preset]{Columns: []output.Column[sdk.Preset]{
		output.Col("name", func(p sdk.Preset) string { return p.Name }),
		output.Col("description", func(p sdk.Preset) string { return p.Description }),
		output.Col("parameters", presetParameters),
		output.Col("default", func(p sdk.Preset) string { return map[bool]string{true: "default"}[p.Default] }),
		output.Col("id", func(p sdk.Preset) string { return p.ID.String() }),
		output.Col("desired prebuild instances", func(p sdk.Preset) string {
			if p.DesiredPrebuildInstances == nil {
				return ""
			}
			return strconv.Itoa(*p.DesiredPrebuildInstances)
		}),
	}, Initial: []string{"name", "description", "parameters", "default"}, JSON: func(p sdk.Preset) any { return presetJSON{p, p} }}
	var org organization.Flag
	var version string
	cmd := &cobra.Command{
		Use:     "list TEMPLATE",
		Aliases: []string{"ls"},
		Short:   "List the presets of a template's version",
		Example: `  coder templates presets list docker`,
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
			v, err := findVersion(cmd.Context(), client, t, version)
			if err != nil {
				return err
			}
			presets, err := client.TemplateVersionPresets(cmd.Context(), v.ID)
			if err != nil {
				return err
			}
			if len(presets) == 0 {
				fmt.Fprintf(g.Streams().Err, "Version %s of %s has no presets.\n", v.Name, t.Name)
			}
			return out.Print(g.Streams().Out, presets)
		},
	}
	cmd.Flags().StringVar(&version, "template-version", "", "name of the version (default: the active one)")
	out.Flags(cmd)
	org.AddLookup(cmd)
	return cmd
}

// presetJSON is like templateJSON.
type presetJSON struct {
	flatPreset
	TemplatePreset sdk.Preset `json:"TemplatePreset"`
}

func presetParameters(p sdk.Preset) string {
	pairs := make([]string, len(p.Parameters))
	for i, parameter := range p.Parameters {
		pairs[i] = parameter.Name + "=" + parameter.Value
	}
	return strings.Join(pairs, " ")
}
