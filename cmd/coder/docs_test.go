package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/wsproxy"
)

// manual is what documentation may name of the program: commands, flags and environment variables.
type manual struct {
	root      *cobra.Command
	flags     map[string]struct{} // "--name" and "-n" of all commands, and of the script that installs the program
	variables map[string]struct{} // those of flags, and those that the sources read directly
}

// notOurs are flags of other programs that pages name without a command.
var notOurs = []string{
	"--stop-timeout", "--privileged", // docker
	"--security-opt", "--cap-add", // docker
	"--jwk-json-path", "--issuer-uri", "--attribute-mapping", "--attribute-condition", // gcloud
}

var (
	codeSpan  = regexp.MustCompile("`([^`\n]+)`")
	variable  = regexp.MustCompile(`\bCODER_[A-Z0-9_]*[A-Z0-9]`)
	provider  = regexp.MustCompile(`^CODER_EXTERNAL_AUTH_(?:\d+|N)(?:_[A-Z_]+)?$`)
	subshell  = regexp.MustCompile(`\$\(([^()]*)\)`)
	separator = regexp.MustCompile(`;|&&|&|\|\||\||#|\(|\)`)
	assigned  = regexp.MustCompile(`^[A-Z_]+=\S*$`)
	longFlag  = regexp.MustCompile(`^--[a-z]`)
	// A flag of a shell script, where it reads its arguments.
	scriptFlag = regexp.MustCompile(`(?m)^\s*(--[a-z-]+)\)`)
	plain      = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

func readManual(t *testing.T) manual {
	t.Helper()
	m := manual{
		root: cli.New(append(provisionerCmds(), serverCmd(), templatesCmd(), docsCmd(), wsproxy.Command())...), flags: map[string]struct{}{}, variables: map[string]struct{}{},
	}
	commands(func(cmd *cobra.Command) {
		cmd.InheritedFlags()
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			m.flags["--"+f.Name] = struct{}{}
			m.flags["-"+f.Shorthand] = struct{}{}
			for _, name := range flags.EnvNames(cmd, f) {
				m.variables[name] = struct{}{}
			}
		})
	})
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{"node_modules", ".git", "build", "docs"}, entry.Name()) {
			return fs.SkipDir
		}
		if !slices.Contains([]string{".go", ".sh", ".ps1"}, filepath.Ext(name)) || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if entry.Name() == "install.sh" {
			for _, found := range scriptFlag.FindAllSubmatch(text, -1) {
				m.flags[string(found[1])] = struct{}{}
			}
		}
		for _, found := range variable.FindAll(text, -1) {
			m.variables[string(found)] = struct{}{}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// check returns what is wrong with the commands, flags and variables of a page.
func (m manual) check(page string) (wrong []string) {
	for _, name := range variable.FindAllString(page, -1) {
		name = provider.ReplaceAllString(name, "CODER_EXTERNAL_AUTH")
		if _, ok := m.variables[name]; !ok {
			wrong = append(wrong, "nothing reads the variable "+name)
		}
	}
	for _, line := range code(page) {
		for _, inner := range subshell.FindAllStringSubmatch(line, -1) {
			wrong = append(wrong, m.checkCommand(inner[1])...)
		}
		for _, one := range separator.Split(subshell.ReplaceAllString(line, "X"), -1) {
			wrong = append(wrong, m.checkCommand(one)...)
		}
	}
	return wrong
}

// code returns the lines of a page's code blocks, and its code spans. A span's flags are checked with the span's command, or on their own.
func code(page string) (lines []string) {
	inFence := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			inFence = !inFence
		case inFence || strings.HasPrefix(line, "    "):
			lines = append(lines, line)
		default:
			for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
				lines = append(lines, span[1])
			}
		}
	}
	return lines
}

// checkCommand checks one command line if it is the program's, or a flag without a command.
func (m manual) checkCommand(line string) (wrong []string) {
	words := strings.Fields(strings.Trim(strings.TrimSpace(line), `$"'`))
	for len(words) > 0 && (assigned.MatchString(words[0]) || words[0] == "sudo" || words[0] == "exec") {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	if name, _, _ := strings.Cut(words[0], "="); longFlag.MatchString(name) {
		if _, ok := m.flags[name]; !ok && !slices.Contains(notOurs, name) {
			wrong = append(wrong, "no command has the flag "+name)
		}
		return wrong
	}
	if words[0] != "coder" && words[0] != "build/coder" {
		return nil
	}
	cmd := m.root
	for words = words[1:]; len(words) > 0; words = words[1:] {
		at := slices.IndexFunc(cmd.Commands(), func(sub *cobra.Command) bool { return sub.Name() == words[0] || sub.HasAlias(words[0]) })
		if at < 0 {
			break
		}
		cmd = cmd.Commands()[at]
	}
	if len(words) > 0 && cmd.HasSubCommands() && plain.MatchString(words[0]) {
		return append(wrong, cmd.CommandPath()+" has no command "+words[0])
	}
	for _, word := range words {
		if word == "--" || cmd.DisableFlagParsing {
			break
		}
		name, _, _ := strings.Cut(word, "=")
		if name = strings.Trim(name, `[]"'`); !strings.HasPrefix(name, "-") || name == "-" {
			continue
		}
		found := cmd.Flag(strings.TrimPrefix(name, "--"))
		if !strings.HasPrefix(name, "--") {
			found = shorthand(cmd, name[1:2])
		}
		if found == nil && name != "--help" {
			wrong = append(wrong, cmd.CommandPath()+" has no flag "+name)
		}
	}
	return wrong
}

func shorthand(cmd *cobra.Command, letter string) *pflag.Flag {
	cmd.InheritedFlags()
	if found := cmd.Flags().ShorthandLookup(letter); found != nil {
		return found
	}
	return cmd.InheritedFlags().ShorthandLookup(letter)
}

// TestDocumentedCommands: the commands, flags and environment variables that pages name exist.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	m := readManual(t)
	var names []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/decisions/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no page matches %s: %v", pattern, err)
		}
		names = append(names, found...)
	}
	checked := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range code(string(text)) {
			if strings.Contains(line, "coder ") {
				checked++
			}
		}
		for _, wrong := range m.check(string(text)) {
			t.Errorf("%s: %s", strings.TrimPrefix(filepath.ToSlash(name), "../../"), wrong)
		}
	}
	if checked < 100 {
		t.Errorf("only %d command lines found: the search is broken", checked)
	}
	lies := "Set `CODER_NO_SUCH_THING`, then `coder nowhere`, `coder templates nothing` or `coder ssh --neverwas dev`.\n\n" +
		"    coder create dev -Q && build/coder list --lost=1; psql \"$(coder server missing-url)\"\n\nBeside `--no-such-flag` there is `--access-url`.\n"
	want := []string{
		"nothing reads the variable CODER_NO_SUCH_THING", "coder has no command nowhere", "coder templates has no command nothing",
		"coder ssh has no flag --neverwas", "coder create has no flag -Q", "coder list has no flag --lost", "coder server has no command missing-url", "no command has the flag --no-such-flag",
	}
	got := m.check(lies)
	for _, one := range want {
		if !slices.Contains(got, one) {
			t.Errorf("check misses %q on a page of mistakes; it found %q", one, got)
		}
	}
}
