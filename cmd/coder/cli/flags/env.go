// Package flags handles what commands accept: flags, the environment variables that set them, and arguments. It knows
// no server.
package flags

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Every flag can be set in the environment: CODER_<FLAG> for the global ones, CODER_<COMMAND>_<FLAG> for those of a
// command ("coder templates push --message": CODER_TEMPLATES_PUSH_MESSAGE). SetEnv and SetEnvPrefix set other names,
// and the table stock adds those of Coder. The command line wins over the environment. EnvNames alone decides the
// names, for binding values and for the help.

const (
	envAnnotation    = "codermesh_env"
	envPrefixOfFlags = "codermesh_env_prefix"
	envShown         = "codermesh_env_shown" // the flag's usage names its variables
	sourceAnnotation = "codermesh_source"
	emptyAnnotation  = "codermesh_empty" // an empty variable sets the flag
)

// SetEnv sets the environment variables of a flag. The first that is set counts.
func SetEnv(flag *pflag.Flag, names ...string) {
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[envAnnotation] = names
}

// SetEnvPrefix sets the prefix of the variables of a command's flags: with "CODER_", CODER_HTTP_ADDRESS sets
// --http-address.
func SetEnvPrefix(cmd *cobra.Command, prefix string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[envPrefixOfFlags] = prefix
}

// EnvNames returns the variables that set a flag of cmd, none for --help and --version. The first that is set counts.
func EnvNames(cmd *cobra.Command, flag *pflag.Flag) []string {
	if flag.Name == "help" || flag.Name == "version" {
		return nil
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	return slices.Concat(ownNames(cmd, flag), stock[path+" --"+flag.Name])
}

func ownNames(cmd *cobra.Command, flag *pflag.Flag) []string {
	if names := flag.Annotations[envAnnotation]; len(names) > 0 {
		return names
	}
	prefix := "CODER_"
	if cmd.Root().PersistentFlags().Lookup(flag.Name) == flag {
		return []string{prefix + EnvWord(flag.Name)}
	}
	if own, ok := cmd.Annotations[envPrefixOfFlags]; ok {
		prefix = own
	} else {
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		prefix += EnvWord(path) + "_"
	}
	return []string{prefix + EnvWord(flag.Name)}
}

func EnvWord(text string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(text))
}

// Source returns where a flag's value comes from: "$NAME" for a variable, other texts for other places, and "" for the
// command line or the default.
func Source(flag *pflag.Flag) string {
	if source := flag.Annotations[sourceAnnotation]; len(source) > 0 {
		return source[0]
	}
	return ""
}

// SetSource records where the value comes from that the flag gets next.
func SetSource(flag *pflag.Flag, source string) {
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[sourceAnnotation] = []string{source}
}

// AllowEmpty makes an empty variable set a flag, for a setting that has a default and whose usage says what empty means.
// A variable with a value counts before an empty one.
func AllowEmpty(flag *pflag.Flag) {
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[emptyAnnotation] = nil
}

// EmptyAllowed reports whether an empty variable sets a flag.
func EmptyAllowed(flag *pflag.Flag) bool {
	_, ok := flag.Annotations[emptyAnnotation]
	return ok
}

// BindEnv sets flags that are not on the command line from their variables. An empty variable counts as unset, as
// scripts and files of variables leave them, except where AllowEmpty says otherwise.
func BindEnv(cmd *cobra.Command) error {
	var failed error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || failed != nil {
			return
		}
		name, ok := variableOf(cmd, flag)
		if !ok {
			return
		}
		values := []string{os.Getenv(name)}
		if flag.Value.Type() == "stringArray" {
			values = strings.Split(values[0], ",")
		}
		SetSource(flag, "$"+name)
		for _, v := range values {
			if err := cmd.Flags().Set(flag.Name, v); err != nil {
				failed = fault.New(fault.Invalid, "cannot use the environment variable %s: %w", name, err)
				return
			}
		}
	})
	return failed
}

// variableOf returns the variable that sets a flag: the first with a value, or else the first that is empty and counts.
func variableOf(cmd *cobra.Command, flag *pflag.Flag) (name string, ok bool) {
	for _, each := range EnvNames(cmd, flag) {
		value, set := os.LookupEnv(each)
		if value != "" {
			return each, true
		}
		if set && !ok && EmptyAllowed(flag) {
			name, ok = each, true
		}
	}
	return name, ok
}

// ShowEnv makes the help of root and its commands name each flag's variables.
func ShowEnv(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cmd.InheritedFlags() // merges them into Flags
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			names := EnvNames(cmd, flag)
			if _, done := flag.Annotations[envShown]; done || len(names) == 0 {
				return
			}
			flag.Usage += " [$" + strings.Join(names, ", $") + "]"
			if flag.Annotations == nil {
				flag.Annotations = map[string][]string{}
			}
			flag.Annotations[envShown] = nil
		})
		help(cmd, args)
	})
}
