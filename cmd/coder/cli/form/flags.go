package form

import (
	"maps"
	"os"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Flags are the flags that set a template's parameters.
type Flags struct {
	values    []string // name=value
	defaults  []string
	ephemeral []string
	build     []string // their older name
	file      string
	// UseDefaults takes the default of each parameter that has one instead of asking.
	UseDefaults bool
	// AskEphemeral asks for parameters of this build only, too.
	AskEphemeral bool
}

func (p *Flags) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&p.values, "parameter", nil, "parameter as name=value; may be repeated")
	f.StringArrayVar(&p.defaults, "parameter-default", nil,
		"default of a parameter as name=value, which replaces the template's; may be repeated")
	f.StringArrayVar(&p.ephemeral, "ephemeral-parameter", nil,
		"parameter for this build only, as name=value; may be repeated")
	f.StringArrayVar(&p.build, "build-option", nil, "older name of --ephemeral-parameter")
	f.Lookup("build-option").Hidden = true
	f.BoolVar(&p.AskEphemeral, "prompt-ephemeral-parameters", false,
		"on a terminal, also ask for parameters for this build only")
	f.BoolVar(&p.AskEphemeral, "build-options", false, "older name of --prompt-ephemeral-parameters")
	f.Lookup("build-options").Hidden = true
	f.StringVar(&p.file, "rich-parameter-file", "", "YAML or JSON file with a value per parameter")
	f.BoolVar(&p.UseDefaults, "use-parameter-defaults", false,
		"take the default of each parameter that has one instead of asking")
	flags.SetEnv(f.Lookup("use-parameter-defaults"), "CODER_USE_PARAMETER_DEFAULTS",
		"CODER_WORKSPACE_USE_PARAMETER_DEFAULTS")
	flags.SetEnv(f.Lookup("parameter"), "CODER_RICH_PARAMETER")
	flags.SetEnv(f.Lookup("parameter-default"), "CODER_RICH_PARAMETER_DEFAULT")
	flags.SetEnv(f.Lookup("ephemeral-parameter"), "CODER_EPHEMERAL_PARAMETER")
	flags.SetEnv(f.Lookup("prompt-ephemeral-parameters"), "CODER_PROMPT_EPHEMERAL_PARAMETERS")
	flags.SetEnv(f.Lookup("rich-parameter-file"), "CODER_RICH_PARAMETER_FILE")
}

// Given returns the values and the defaults of the flags and the file, by name.
func (p *Flags) Given() (values, defaults map[string]string, err error) {
	values = map[string]string{}
	if p.file != "" {
		data, err := os.ReadFile(p.file)
		if err != nil {
			return nil, nil, fault.New(fault.Invalid, "cannot read the parameter file: %w", err)
		}
		if values, err = ParseValues(data); err != nil {
			return nil, nil, fault.New(fault.Invalid, "cannot use the parameter file %s: %w", p.file, err)
		}
	}
	for _, list := range []struct {
		flag  string
		pairs []string
	}{{"parameter", p.values}, {"build-option", p.build}, {"ephemeral-parameter", p.ephemeral}} {
		pairs, err := flags.Pairs(list.flag, list.pairs)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(values, pairs)
	}
	defaults, err = flags.Pairs("parameter-default", p.defaults)
	return values, defaults, err
}

func (p *Flags) Empty() bool {
	return len(p.values) == 0 && len(p.ephemeral) == 0 && len(p.build) == 0 && p.file == "" &&
		len(p.defaults) == 0 && !p.AskEphemeral
}
