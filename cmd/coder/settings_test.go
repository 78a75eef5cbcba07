package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/wsproxy"
)

var update = flag.Bool("update", false, "rewrite the tables of settings in docs/settings.md")

// commands visits all commands of the program, in order of names.
func commands(visit func(*cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		visit(cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(cli.New(append(provisionerCmds(), serverCmd(), templatesCmd(), wsproxy.Command())...))
}

// TestHelpNamesVariables: every flag's help names the variable that sets it.
func TestHelpNamesVariables(t *testing.T) {
	t.Parallel()
	documented := 0
	commands(func(cmd *cobra.Command) {
		var help bytes.Buffer
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			names := flags.EnvNames(cmd, f)
			if f.Hidden || len(names) == 0 {
				return
			}
			documented++
			if want := "[$" + strings.Join(names, ", $") + "]"; strings.Count(help.String(), want) != 1 {
				t.Errorf("%s --help does not say once that %s sets --%s:\n%s", cmd.CommandPath(), want, f.Name, help.String())
			}
		})
	})
	if documented < 300 {
		t.Errorf("only %d flags were looked at", documented)
	}
}

// TestVariablesSetFlags: every variable sets its flag, and no other flag of the same command.
func TestVariablesSetFlags(t *testing.T) {
	values := map[string]string{
		"bool": "true", "int": "7", "int32": "7", "uint16": "7", "duration": "7s", "string": "seven", "stringArray": "seven", "stringSlice": "seven",
	}
	// All run in one tree: to make it costs a hundred times what one of them does.
	commands(func(cmd *cobra.Command) {
		if !cmd.Runnable() || cmd.DisableFlagParsing {
			return
		}
		var set []string
		cmd.RunE, cmd.Run, cmd.Args = func(cmd *cobra.Command, _ []string) error {
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Changed {
					set, f.Changed = append(set, f.Name), false
				}
			})
			return nil
		}, nil, cobra.ArbitraryArgs
		path := strings.Fields(cmd.CommandPath())[1:]
		cmd.InheritedFlags() // merges them into Flags
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for _, name := range flags.EnvNames(cmd, f) {
				value, ok := values[f.Value.Type()]
				if !ok {
					value = "7"
				}
				t.Run(strings.Join(path, " ")+" "+name, func(t *testing.T) {
					t.Setenv(name, value)
					set = nil
					cmd.Root().SetArgs(path)
					if err := cmd.Root().ExecuteContext(t.Context()); err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(set, []string{f.Name}) {
						t.Errorf("$%s set %q, want %q", name, set, f.Name)
					}
				})
			}
		})
	})
}

// TestEmptyVariables: an empty variable sets the flags that have a default and whose usage says what empty means, and no
// others.
func TestEmptyVariables(t *testing.T) {
	t.Parallel()
	allowed := map[string]bool{}
	commands(func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			said := f.DefValue != "" && f.DefValue != "[]" && strings.Contains(f.Usage, "empty for")
			if said != flags.EmptyAllowed(f) {
				t.Errorf("%s --%s: an empty variable counts: %t; its default is %q and its usage %q", cmd.CommandPath(), f.Name, !said, f.DefValue, f.Usage)
			}
			if said {
				allowed[f.Name] = true
			}
		})
	})
	if !allowed["http-address"] || !allowed["provisioner-docker-socket"] {
		t.Errorf("empty variables count for %v", allowed)
	}
}

// TestDocumentedSettings: the documentation lists what the daemons understand.
func TestDocumentedSettings(t *testing.T) {
	t.Parallel()
	const path = "../../docs/settings.md"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	commands(func(cmd *cobra.Command) {
		if name := cmd.CommandPath(); name != "coder server" && name != "coder provisionerd start" {
			return
		}
		begin, end := "<!-- settings of "+cmd.CommandPath()+" -->\n", "<!-- end of settings -->"
		_, rest, ok := strings.Cut(doc, begin)
		have, _, ended := strings.Cut(rest, end)
		if !ok || !ended {
			t.Fatalf("%s has no place %q", path, begin)
		}
		want := settingsTable(cmd)
		if have != want && !*update {
			t.Errorf("%s differs from the flags of %s: run go test ./cmd/coder -run Documented -update", path, cmd.CommandPath())
		}
		doc = strings.Replace(doc, begin+have, begin+want, 1)
	})
	if *update {
		if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// configKeys returns a function that returns a flag's key in the command's file.
func configKeys(cmd *cobra.Command) func(string) string {
	keys := withJobKeys(serverKeys)
	if cmd.Name() == "start" {
		keys = withJobKeys(provisionerKeys)
	}
	return func(flag string) string {
		if key, ok := keys[flag]; ok {
			return key.Path
		}
		if secret, ok := strings.CutSuffix(flag, "-file"); ok && keys[secret].Secret {
			return keys[secret].File
		}
		return ""
	}
}

// TestFlagsHaveKeys: every flag of a daemon has one place in its file, which is no group of others, and every key has a flag.
func TestFlagsHaveKeys(t *testing.T) {
	t.Parallel()
	commands(func(cmd *cobra.Command) {
		if name := cmd.CommandPath(); name != "coder server" && name != "coder provisionerd start" {
			return
		}
		keys := configKeys(cmd)
		flagOf := map[string]string{}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains([]string{"config", "write-config", "help"}, f.Name) || strings.HasPrefix(f.Usage, "has no effect") {
				return
			}
			key := keys(f.Name)
			if key == "" {
				t.Errorf("--%s of %s has no key: add it to cmd/coder/serverkeys.go", f.Name, cmd.CommandPath())
				return
			}
			if other, taken := flagOf[key]; taken {
				t.Errorf("--%s and --%s have the same key %s", f.Name, other, key)
			}
			flagOf[key] = f.Name
		})
		for key := range flagOf {
			for other := range flagOf {
				if strings.HasPrefix(other, key+".") {
					t.Errorf("the key %s is also the group of %s", key, other)
				}
			}
		}
		listed := withJobKeys(serverKeys)
		if cmd.Name() == "start" {
			listed = withJobKeys(provisionerKeys)
		}
		for flag := range listed {
			if cmd.Flags().Lookup(flag) == nil {
				t.Errorf("the key of --%s has no flag in %s", flag, cmd.CommandPath())
			}
		}
	})
}

// settingsTable returns a table of a command's own flags.
func settingsTable(cmd *cobra.Command) string {
	var out strings.Builder
	keys := configKeys(cmd)
	out.WriteString("| flag | variable | key | sets |\n|---|---|---|---|\n")
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		names := flags.EnvNames(cmd, f)
		if f.Hidden || len(names) == 0 {
			return
		}
		usage, _, _ := strings.Cut(f.Usage, " [$")
		if !slices.Contains([]string{"", "0", "false", "[]", "0s"}, f.DefValue) && !strings.Contains(usage, "(default") {
			usage += " (default " + f.DefValue + ")"
		}
		key := ""
		if path := keys(f.Name); path != "" {
			key = "`" + path + "`"
		}
		fmt.Fprintf(&out, "| `--%s` | `%s` | %s | %s |\n", f.Name, strings.Join(names, "`, `"), key, strings.ReplaceAll(usage, "|", "\\|"))
	})
	return out.String()
}

// TestCoderVariables checks that the variables of Coder's command line set the flags that they set there. Flags that this program does not
// have are not in the list: the server logs a warning about variables that nothing reads.
func TestCoderVariables(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/coder-variables.txt")
	if err != nil {
		t.Fatal(err)
	}
	m := readManual(t)
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		path, flag, variable := words[:len(words)-2], strings.TrimPrefix(words[len(words)-2], "--"), words[len(words)-1]
		cmd, rest, err := m.root.Find(path)
		if err != nil || len(rest) > 0 {
			t.Errorf("%s: no command %q", variable, path)
			continue
		}
		f := cmd.Flags().Lookup(flag)
		if len(path) == 0 {
			f = cmd.PersistentFlags().Lookup(flag)
		}
		if f == nil {
			t.Errorf("%s: coder %s has no flag --%s", variable, strings.Join(path, " "), flag)
		} else if names := flags.EnvNames(cmd, f); !slices.Contains(names, variable) {
			t.Errorf("%s: coder %s --%s is set by %q", variable, strings.Join(path, " "), flag, names)
		}
	}
}
