package flags_test

import (
	"maps"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 0, "30d": 720 * time.Hour, "1.5d": 36 * time.Hour, "12h": 12 * time.Hour} {
		if got, err := flags.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, bad := range []string{"d", "-1d", "0d", "-1h", "0s", "30", "month", "1e300d", "110000d", "NaNd"} {
		if got, err := flags.ParseDuration(bad); fault.CodeOf(err) != fault.Invalid || err == nil {
			t.Errorf("%q: got %s, %v, want an invalid fault", bad, got, err)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"", "30d", "12h", "1e300d", "NaNd", "-1d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := flags.ParseDuration(text); err == nil && (d < 0 || d == 0 && text != "") {
			t.Errorf("%q is %s", text, d)
		}
	})
}

func TestPairs(t *testing.T) {
	t.Parallel()
	got, err := flags.Pairs("tag", []string{"a=1", "b=x=y", "a=2"})
	if want := map[string]string{"a": "2", "b": "x=y"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	// What scripts for Coder quote.
	got, err = flags.Pairs("tag", []string{`"l=[""a=1"",""b,c""]"`, `"x=1","y=2"`, `"z=1,z"`, `plain=["a"]`})
	if want := map[string]string{"l": `["a=1","b,c"]`, "x": "1", "y": "2", "z": "1,z", "plain": `["a"]`}; err != nil || !maps.Equal(got, want) {
		t.Errorf("quoted: got %v, %v, want %v", got, err, want)
	}
	// Not CSV: the quotation mark belongs to the name.
	if got, err := flags.Pairs("tag", []string{`"a=1`}); err != nil || got[`"a`] != "1" {
		t.Errorf("half quoted: got %v, %v", got, err)
	}
	for _, bad := range []string{"a", "=b", "", `"a"`, `"a=1",b`} {
		if _, err := flags.Pairs("tag", []string{bad}); fault.CodeOf(err) != fault.Invalid || err == nil {
			t.Errorf("%q: got %v, want an invalid fault", bad, err)
		}
	}
}

// TestCheckArguments: arguments that a command does not accept cause errors with a hint, in groups of commands, too.
func TestCheckArguments(t *testing.T) {
	t.Parallel()
	newRoot := func() *cobra.Command {
		root := &cobra.Command{Use: "coder", SilenceErrors: true, SilenceUsage: true}
		group := &cobra.Command{Use: "fruit"}
		run := func(*cobra.Command, []string) error { return nil }
		group.AddCommand(&cobra.Command{Use: "peel NAME", Args: flags.Argument("fruit's name"), RunE: run}, &cobra.Command{Use: "list", Args: cobra.NoArgs, RunE: run},
			&cobra.Command{Use: "mix ONE OTHER", Args: cobra.ExactArgs(2), RunE: run})
		root.AddCommand(group)
		flags.CheckArguments(root)
		return root
	}
	for _, tt := range []struct {
		args       []string
		want, hint string
	}{
		{[]string{"fruit", "peel", "apple"}, "", ""},
		{[]string{"fruit", "peel"}, "the fruit's name is missing", "coder fruit peel NAME [flags]"},
		{[]string{"fruit", "peel", "apple", "pear"}, `expected one fruit's name, got 2: ["apple" "pear"]`, "coder fruit peel NAME [flags]"},
		{[]string{"fruit", "list", "all"}, `coder fruit list takes no arguments, but got "all"`, "coder fruit list [flags]"},
		{[]string{"fruit", "mix"}, "coder fruit mix needs arguments", "coder fruit mix ONE OTHER [flags]"},
		{[]string{"fruit", "mix", "apple"}, `coder fruit mix cannot use the arguments "apple"`, "coder fruit mix ONE OTHER [flags]"},
		{[]string{"fruit", "lisst"}, `coder fruit has no command "lisst"`, "coder fruit list"},
		{[]string{"fruit", "squeeze"}, `coder fruit has no command "squeeze"`, "coder fruit --help"},
	} {
		root := newRoot()
		root.SetArgs(tt.args)
		err := root.Execute()
		hint, _ := exit.Hint(err)
		if tt.want == "" && err == nil {
			continue
		}
		if err == nil || err.Error() != tt.want || hint != tt.hint {
			t.Errorf("%q: got %v, hint %q, want %q, hint %q", tt.args, err, hint, tt.want, tt.hint)
		}
	}
}
