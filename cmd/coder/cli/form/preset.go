package form

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

const NoPreset = "none"

// ChoosePreset returns the named preset of a template version. For "" it asks which, if ask is not nil; otherwise it
// returns the template's default preset and reports that on notes. The zero preset means none.
func ChoosePreset(ctx context.Context, client *sdk.Client, version uuid.UUID, name string, notes io.Writer, ask func(tty.Question) (string, error)) (sdk.Preset, error) {
	if name == NoPreset {
		return sdk.Preset{}, nil
	}
	presets, err := client.TemplateVersionPresets(ctx, version)
	if err != nil {
		return sdk.Preset{}, err
	}
	if name == "" && ask != nil && len(presets) > 0 {
		if name, err = ask(presetQuestion(presets)); err != nil || name == "" {
			return sdk.Preset{}, err
		}
	}
	if name == "" {
		i := slices.IndexFunc(presets, func(p sdk.Preset) bool { return p.Default })
		if i < 0 {
			return sdk.Preset{}, nil
		}
		fmt.Fprintf(notes, "Using the template's default preset %s (--preset none to use none).\n",
			tty.Clean(presets[i].Name))
		return presets[i], nil
	}
	var names []string
	for _, p := range presets {
		if strings.EqualFold(p.Name, name) {
			return p, nil
		}
		names = append(names, p.Name)
	}
	list := "it has none"
	if len(names) > 0 {
		list = "it has " + strings.Join(names, ", ")
	}
	return sdk.Preset{}, fault.New(fault.NotFound, "the template has no preset %q: %s", name, list)
}

// presetQuestion asks for one of the presets, or none, which is the empty answer.
func presetQuestion(presets []sdk.Preset) tty.Question {
	q := tty.Question{Text: "Preset", HasDefault: true}
	for _, p := range presets {
		help := p.Description
		if help == "" {
			var sets []string // names only: values may be masked
			for _, v := range p.Parameters {
				sets = append(sets, v.Name)
			}
			help = "sets " + strings.Join(sets, ", ")
		}
		if p.Default {
			q.Default = p.Name
		}
		q.Choices = append(q.Choices, tty.Choice{Label: p.Name, Help: help, Value: p.Name})
	}
	q.Choices = append(q.Choices, tty.Choice{Label: "None", Help: "answer each question"})
	return q
}
