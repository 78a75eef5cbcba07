package settings

import (
	"maps"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Options returns the present settings, ordered by key, without the values of secrets. Lists of objects are not among
// them.
func (s *Set) Options() []sdk.DeploymentOption {
	var out []sdk.DeploymentOption
	for _, name := range slices.Sorted(maps.Keys(s.keys)) {
		flag, key := s.cmd.Flags().Lookup(name), s.keys[name]
		usage, _, _ := strings.Cut(flag.Usage, " [$")
		o := sdk.DeploymentOption{
			Name: key.Path, Description: usage, Flag: name, Default: flag.DefValue, Value: flag.Value.String(),
			ValueSource: "default",
		}
		o.YAML = key.Path[strings.LastIndex(key.Path, ".")+1:]
		if names := flags.EnvNames(s.cmd, flag); len(names) > 0 {
			o.Env = names[0]
		}
		switch rank(flag) {
		case 3:
			o.ValueSource = "flag"
		case 2:
			o.ValueSource = "env"
		case 1:
			o.ValueSource = "yaml"
		}
		if key.Secret {
			o.Default, o.Value, o.Annotations = "", "", map[string]string{"secret": "true"}
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b sdk.DeploymentOption) int { return comparePaths(a.Name, b.Name) })
	return out
}
