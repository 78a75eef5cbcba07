package settings

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/internal/nearest"
)

// nearestKey returns the key that the unknown path probably means: one with the name of a flag, one in another group,
// or one that is spelled almost like it.
func (s *Set) nearestKey(path string) string {
	last := path[strings.LastIndexByte(path, '.')+1:]
	var paths, groups []string
	for _, flag := range slices.Sorted(maps.Keys(s.keys)) {
		key := s.keys[flag].Path
		if squash(last) == squash(flag) {
			return key
		}
		paths = append(paths, key)
		for at := strings.LastIndexByte(key, '.'); at > 0; at = strings.LastIndexByte(key[:at], '.') {
			groups = append(groups, key[:at])
		}
	}
	for path := range s.lists {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, key := range paths {
		if squash(last) == squash(key[strings.LastIndexByte(key, '.')+1:]) {
			return key
		}
	}
	return nearest.Within(path, append(paths, groups...), max(2, len(path)/3))
}

// squash removes what differs between the ways to write a name.
func squash(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
}

// warnUnknownVariables warns of variables that nothing reads.
func (s *Set) warnUnknownVariables(environ []string) {
	var known []string
	collect(s.cmd.Root(), &known)
	for _, one := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(one, "=")
		if !strings.HasPrefix(name, "CODER_") || value == "" || slices.Contains(known, name) || s.foreign(name) {
			continue
		}
		if near := nearest.Within(name, known, max(2, len(name)/5)); near != "" {
			s.warnings = append(s.warnings, "nothing reads the variable "+name+": did you mean "+near+"?")
		} else {
			s.warnings = append(s.warnings, "nothing reads the variable "+name)
		}
	}
}

// absent lists variables of Coder's server that have no setting here and whose names begin as those of other parts do.
var absent = []string{
	"CODER_AGENT_FALLBACK_TROUBLESHOOTING_URL", "CODER_AGENT_STATS_REFRESH_INTERVAL",
	"CODER_PROVISIONER_FORCE_CANCEL_INTERVAL", "CODER_PROVISIONER_TYPES",
	"CODER_WORKSPACE_PREBUILDS_FAILURE_HARD_LIMIT", "CODER_WORKSPACE_PREBUILDS_RECONCILIATION_BACKOFF_INTERVAL",
	"CODER_WORKSPACE_PREBUILDS_RECONCILIATION_BACKOFF_LOOKBACK_PERIOD",
	"CODER_WORKSPACE_PREBUILDS_RECONCILIATION_INTERVAL",
}

// foreign reports whether a variable is for other parts of the program: agents, terminals and jobs in a workspace, and
// numbered lists.
func (s *Set) foreign(name string) bool {
	if slices.Contains(absent, name) {
		return false
	}
	for _, l := range s.lists {
		if strings.HasPrefix(name, l.prefix) {
			return true
		}
	}
	return slices.ContainsFunc([]string{
		"CODER_AGENT_", "CODER_WORKSPACE_", "CODER_SCRIPT_", "CODER_PARAMETER_", "CODER_PROVISIONER_", "CODER_MESH_", "CODER_GIT_", "CODER_LOGIN_", "CODER_TEST_",
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// collect adds the variables of all commands.
func collect(cmd *cobra.Command, known *[]string) {
	cmd.InheritedFlags() // merges them into Flags
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { *known = append(*known, flags.EnvNames(cmd, flag)...) })
	for _, sub := range cmd.Commands() {
		collect(sub, known)
	}
}
