package settings_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/settings"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// bakery is a daemon with settings of all types.
type bakery struct {
	cmd     *cobra.Command
	set     *settings.Set
	Address string
	Ovens   int
	Open    bool
	Heat    float64
	Bake    time.Duration
	Keep    flags.Days
	Breads  []string
	Tags    []string
	Prices  string
	Recipe  string // secret
	Shelf   string // empty for none
}

func newBakery() *bakery {
	b := &bakery{cmd: &cobra.Command{Use: "bakery"}}
	f := b.cmd.Flags()
	f.StringVar(&b.Address, "http-address", "127.0.0.1:80", "address to serve on")
	f.IntVar(&b.Ovens, "ovens", 3, "number of ovens")
	f.BoolVar(&b.Open, "open", true, "open the shop")
	f.Float64Var(&b.Heat, "heat", 1.5, "heat")
	f.DurationVar(&b.Bake, "bake", time.Minute, "how long to bake")
	f.Var(&b.Keep, "keep", "how long to keep bread")
	f.StringSliceVar(&b.Breads, "breads", []string{"rye"}, "breads")
	f.StringArrayVar(&b.Tags, "tag", nil, "tags")
	f.StringVar(&b.Prices, "prices", "{}", "JSON object with prices")
	f.StringVar(&b.Recipe, "recipe", "", "secret recipe")
	f.StringVar(&b.Shelf, "shelf", "oak", "shelf for bread; empty for none")
	flags.SetEnvPrefix(b.cmd, "BAKERY_")
	flags.SetEnv(f.Lookup("shelf"), "BAKERY_SHELF", "BAKERY_OLD_SHELF")
	flags.AllowEmpty(f.Lookup("shelf"))
	b.set = settings.New(b.cmd, map[string]settings.Key{
		"http-address": {Path: "networking.http.httpAddress"}, "ovens": {Path: "ovens"}, "open": {Path: "shop.open"}, "heat": {Path: "heat"},
		"bake": {Path: "baking.duration"}, "keep": {Path: "retention.bread"}, "breads": {Path: "breads"}, "tag": {Path: "tags"},
		"prices": {Path: "shop.prices", JSON: true}, "recipe": {Path: "recipe", Secret: true, File: "recipeFile"},
	}, "BAKERY_CONFIG_PATH")
	b.set.Rename("ovens", "stoves", "BAKERY_STOVES")
	b.set.AddList("suppliers", "BAKERY_SUPPLIER_", "password", "name", "password", "goods")
	return b
}

// load reads the command line, the environment and a file.
func (b *bakery) load(t testing.TB, file string, args ...string) error {
	t.Helper()
	if file != "" {
		args = append(args, "--config", write(t, "bakery.yaml", file))
	}
	if err := b.cmd.ParseFlags(args); err != nil {
		return err
	}
	if err := flags.BindEnv(b.cmd); err != nil {
		return err
	}
	b.set.Load()
	return b.set.Err()
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const everything = `
# all types
networking:
  http:
    httpAddress: "0.0.0.0:8080"
ovens: 7
shop:
  open: false
  prices: {rye: 3, wheat: [1, 2]}
heat: 2.25
baking:
  duration: 90s
retention:
  bread: 30d
breads: [wheat, "a,b"]
tags:
  - a=1
  - b=2,3
recipe: flour
suppliers:
  - name: mill
    password: hunter2
    goods: [flour, bran]
  - name: dairy
`

// TestListAsJSON: a flag whose value is JSON takes a list of objects from the file.
func TestListAsJSON(t *testing.T) {
	t.Parallel()
	b := newBakery()
	if err := b.load(t, "shop:\n  prices:\n  - {bread: rye, price: 3}\n  - bread: wheat\n"); err != nil {
		t.Fatal(err)
	}
	if want := `[{"bread":"rye","price":3},{"bread":"wheat"}]`; b.Prices != want {
		t.Errorf("prices are %s, want %s", b.Prices, want)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	b := newBakery()
	if err := b.load(t, everything); err != nil {
		t.Fatal(err)
	}
	if b.Address != "0.0.0.0:8080" || b.Ovens != 7 || b.Open || b.Heat != 2.25 || b.Bake != 90*time.Second || time.Duration(b.Keep) != 720*time.Hour || b.Recipe != "flour" {
		t.Errorf("got %+v", b)
	}
	if diff := cmp.Diff([][]string{{"wheat", "a,b"}, {"a=1", "b=2,3"}}, [][]string{b.Breads, b.Tags}); diff != "" {
		t.Error(diff)
	}
	if b.Prices != `{"rye":3,"wheat":[1,2]}` {
		t.Errorf("prices are %s", b.Prices)
	}
	want := []string{"X=1", "BAKERY_SUPPLIER_0_NAME=mill", "BAKERY_SUPPLIER_0_PASSWORD=hunter2", "BAKERY_SUPPLIER_0_GOODS=flour,bran", "BAKERY_SUPPLIER_1_NAME=dairy"}
	if diff := cmp.Diff(want, b.set.Environ([]string{"X=1"})); diff != "" {
		t.Error(diff)
	}
	own := []string{"BAKERY_SUPPLIER_0_NAME=own"}
	if diff := cmp.Diff(own, b.set.Environ(own)); diff != "" {
		t.Errorf("the environment does not replace the file's list: %s", diff)
	}
}

func TestPrecedence(t *testing.T) {
	t.Setenv("BAKERY_OVENS", "2")
	t.Setenv("BAKERY_BREADS", "spelt,corn")
	t.Setenv("BAKERY_HTTP_ADDRESS", "env:1")
	b := newBakery()
	if err := b.load(t, everything, "--ovens=1"); err != nil {
		t.Fatal(err)
	}
	if b.Ovens != 1 || b.Address != "env:1" || b.Heat != 2.25 || !slices.Equal(b.Breads, []string{"spelt", "corn"}) {
		t.Errorf("got %+v", b)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n", "shop:\novens:\n"} {
		b := newBakery()
		if err := b.load(t, empty); err != nil || !b.Open || b.Ovens != 2 {
			t.Errorf("%q: got %v, %+v", empty, err, b)
		}
	}
}

// TestEmptyVariable: an empty variable counts as unset unless empty means something for its flag.
func TestEmptyVariable(t *testing.T) {
	t.Setenv("BAKERY_HTTP_ADDRESS", "")
	t.Setenv("BAKERY_OVENS", "")
	t.Setenv("BAKERY_BREADS", "")
	t.Setenv("BAKERY_SHELF", "")
	const file = "ovens: 7\nshelf: pine\n"
	source := func(b *bakery) string { return flags.Source(b.cmd.Flags().Lookup("shelf")) }
	b := newBakery()
	if err := b.load(t, file); err != nil {
		t.Fatal(err)
	}
	if b.Shelf != "" || source(b) != "$BAKERY_SHELF" || b.Address != "127.0.0.1:80" || b.Ovens != 7 || !slices.Equal(b.Breads, []string{"rye"}) {
		t.Errorf("got %+v, the shelf from %q", b, source(b))
	}
	b = newBakery()
	if err := b.load(t, file, "--shelf=beech"); err != nil || b.Shelf != "beech" || source(b) != "" {
		t.Errorf("with a flag: got %+v, %v", b, err)
	}
	t.Setenv("BAKERY_OLD_SHELF", "ash") // a value counts before an empty variable
	b = newBakery()
	if err := b.load(t, file); err != nil || b.Shelf != "ash" || source(b) != "$BAKERY_OLD_SHELF" {
		t.Errorf("with another variable: got %+v, %v", b, err)
	}
	if err := os.Unsetenv("BAKERY_SHELF"); err != nil { // t.Setenv restores it
		t.Fatal(err)
	}
	t.Setenv("BAKERY_OLD_SHELF", "")
	b = newBakery()
	if err := b.load(t, ""); err != nil || b.Shelf != "" || source(b) != "$BAKERY_OLD_SHELF" {
		t.Errorf("with that one empty: got %+v, %v", b, err)
	}
}

// TestMistakes: a message names every mistake, with its place, and no secret.
func TestMistakes(t *testing.T) {
	t.Setenv("BAKERY_BAKE", "soon")
	for file, want := range map[string][]string{
		"ovens: many\nshop:\n  open: perhaps\n": {`3 settings cannot be used`, `$BAKERY_BAKE: "soon" is not a duration such as 90s`, `bakery.yaml:1: "many" is not a whole number`, `bakery.yaml:3: "perhaps" is neither true nor false`},
		"oven: 1":                               {"bakery.yaml:1: unknown key oven: did you mean ovens?"},
		"http-address: x":                       {"unknown key http-address: did you mean networking.http.httpAddress?"},
		"networking:\n  httpAddress: x":         {"bakery.yaml:2: unknown key networking.httpAddress: did you mean networking.http.httpAddress?"},
		"shoop:\n  open: true":                  {"unknown key shoop: did you mean shop?"},
		"entirely_unrelated_thing: 1":           {"unknown key entirely_unrelated_thing"},
		"ovens: 1\novens: 2":                    {"bakery.yaml:2: ovens is already set in line 1"},
		"ovens: [1]":                            {"ovens must be a single value"},
		"breads: {a: b}":                        {"breads must be a list"},
		"breads: [[a]]":                         {"breads must be a list of texts"},
		"shop: 1":                               {"shop is a group"},
		"a: &x 1\novens: *x":                    {"aliases are not supported", "unknown key a"},
		"shop:\n  prices: {a: &x 1, b: *x}":     {"aliases are not supported"},
		"- a":                                   {"must contain keys and values"},
		"a: [":                                  {"is not YAML"},
		"ovens: 1\n---\novens: 2":               {"must contain one YAML document"},
		"suppliers: 1":                          {"suppliers must be a list"},
		"suppliers:\n  - nam: x":                {"unknown key nam in suppliers: did you mean name?"},
		"recipe: flour\nrecipeFile: /x":         {"--recipe and --recipe-file cannot be combined"},
		"recipeFile: /no/such/file":             {"bakery.yaml:1: cannot read the file: stat /no/such/file"},
	} {
		err := newBakery().load(t, file)
		if fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%q: got %v, want an invalid fault", file, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: got %q, want %q in it", file, err, part)
			}
		}
		if strings.Contains(err.Error(), "flour") {
			t.Errorf("%q: the message contains a secret: %v", file, err)
		}
	}
	if err := newBakery().load(t, "", "--config", "/no/such/file.yaml", "--ovens=x"); err == nil || !strings.Contains(err.Error(), "--config: cannot read") || !strings.Contains(err.Error(), `--ovens: "x"`) {
		t.Errorf("got %v", err)
	}
}

// TestSecretFiles: a secret's file counts as much as the source that names it.
func TestSecretFiles(t *testing.T) {
	secret := write(t, "recipe", "butter\n")
	b := newBakery()
	if err := b.load(t, "recipeFile: "+secret); err != nil || b.Recipe != "butter" {
		t.Errorf("got %q, %v", b.Recipe, err)
	}
	b = newBakery()
	if err := b.load(t, "recipeFile: "+secret, "--recipe=cream"); err != nil || b.Recipe != "cream" {
		t.Errorf("the flag does not win over the file of the file: got %q, %v", b.Recipe, err)
	}
	t.Setenv("BAKERY_RECIPE_FILE", secret)
	b = newBakery()
	if err := b.load(t, "recipe: flour"); err != nil || b.Recipe != "butter" {
		t.Errorf("the variable does not win over the file: got %q, %v", b.Recipe, err)
	}
	t.Setenv("BAKERY_RECIPE_FILE", write(t, "empty", "\n"))
	if err := newBakery().load(t, ""); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("got %v for an empty secret", err)
	}
}

func TestWarnings(t *testing.T) {
	t.Setenv("CODER_NO_SUCH_SETTING", "1")
	t.Setenv("CODER_AGENT_STATS_REFRESH_INTERVAL", "1s")
	t.Setenv("CODER_AGENT_TOKEN", "a token of a workspace")
	b := newBakery()
	path := write(t, "open.yaml", "recipe: flour")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.load(t, "", "--config", path); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(b.set.Warnings(), "\n")
	for _, want := range []string{"variable CODER_NO_SUCH_SETTING", "variable CODER_AGENT_STATS_REFRESH_INTERVAL", "chmod 600 " + path} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q without %q", got, want)
		}
	}
	if strings.Contains(got, "CODER_AGENT_TOKEN") {
		t.Errorf("got %q of a variable that agents read", got)
	}
}

// TestRename sets a flag by its other name and its other variable, which are noted, and by its own, which are not.
func TestRename(t *testing.T) {
	for _, c := range []struct {
		variable string
		args     []string
		ovens    int
		want     []string
	}{
		{args: []string{"--stoves", "5"}, ovens: 5, want: []string{"--stoves is called --ovens here"}},
		{args: []string{"--stoves=5", "--stoves=6"}, ovens: 6, want: []string{"--stoves is called --ovens here"}},
		{args: []string{"--ovens", "5"}, ovens: 5},
		{variable: "BAKERY_STOVES", ovens: 9, want: []string{"$BAKERY_STOVES is called --ovens here"}},
		{variable: "BAKERY_STOVES", args: []string{"--ovens", "5"}, ovens: 5},
		{variable: "BAKERY_OVENS", ovens: 9},
	} {
		t.Run(strings.Join(append(c.args, c.variable), " "), func(t *testing.T) {
			if c.variable != "" {
				t.Setenv(c.variable, "9")
			}
			b := newBakery()
			if err := b.load(t, "", c.args...); err != nil || b.Ovens != c.ovens {
				t.Errorf("got %d ovens, %v", b.Ovens, err)
			}
			if got := b.set.Warnings(); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	b := newBakery()
	if err := b.load(t, "", "--stoves", "many"); err == nil || !strings.Contains(err.Error(), "whole number") {
		t.Errorf("a wrong value: %v", err)
	}
}

// TestWrite: the written file gives the same settings, except for secrets.
func TestWrite(t *testing.T) {
	t.Parallel()
	b := newBakery()
	if err := b.load(t, everything); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := b.set.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "recipe: flour"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("the file contains the secret %q:\n%s", secret, out.String())
		}
	}
	again := newBakery()
	if err := again.load(t, out.String()); err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	b.Recipe = ""
	b.cmd, b.set, again.cmd, again.set = nil, nil, nil, nil
	if diff := cmp.Diff(b, again, cmp.AllowUnexported(bakery{})); diff != "" {
		t.Errorf("%s\nof\n%s", diff, out.String())
	}
	fresh := newBakery()
	out.Reset()
	if err := fresh.set.Write(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "  # open: true\n") || !strings.Contains(out.String(), "# address to serve on [--http-address, $BAKERY_HTTP_ADDRESS]") {
		t.Errorf("defaults are not comments with their help:\n%s", out.String())
	}
}

func FuzzFile(f *testing.F) {
	for _, seed := range []string{everything, "", "a: &x [*x]", "? {a: b}\n: c", "shop:\n  prices: {1: 2}", "suppliers:\n- {name: [a, {b: c}]}", "\xff", "ovens: !!binary x", "<<: {ovens: 1}", "breads: !!map x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := newBakery()
		if b.load(t, text) != nil {
			return
		}
		var out strings.Builder
		if err := b.set.Write(&out); err != nil {
			t.Fatal(err)
		}
		if err := newBakery().load(t, out.String()); err != nil {
			t.Errorf("%q is accepted, but not what it becomes: %v\n%s", text, err, out.String())
		}
	})
}

// TestOptions: each setting is listed with its value and source, and a secret without its value.
func TestOptions(t *testing.T) {
	t.Setenv("BAKERY_OVENS", "5")
	b := newBakery()
	if err := b.load(t, "shop:\n  open: false\nrecipe: butter\n", "--http-address", "127.0.0.1:81"); err != nil {
		t.Fatal(err)
	}
	got := map[string]sdk.DeploymentOption{}
	for _, o := range b.set.Options() {
		got[o.Flag] = o
	}
	for flag, want := range map[string]sdk.DeploymentOption{
		"http-address": {Name: "networking.http.httpAddress", Description: "address to serve on", Flag: "http-address", Env: "BAKERY_HTTP_ADDRESS", YAML: "httpAddress",
			Default: "127.0.0.1:80", Value: "127.0.0.1:81", ValueSource: "flag"},
		"ovens":  {Name: "ovens", Description: "number of ovens", Flag: "ovens", Env: "BAKERY_OVENS", YAML: "ovens", Default: "3", Value: "5", ValueSource: "env"},
		"open":   {Name: "shop.open", Description: "open the shop", Flag: "open", Env: "BAKERY_OPEN", YAML: "open", Default: "true", Value: "false", ValueSource: "yaml"},
		"heat":   {Name: "heat", Description: "heat", Flag: "heat", Env: "BAKERY_HEAT", YAML: "heat", Default: "1.5", Value: "1.5", ValueSource: "default"},
		"recipe": {Name: "recipe", Description: "secret recipe", Flag: "recipe", Env: "BAKERY_RECIPE", YAML: "recipe", ValueSource: "yaml", Annotations: sdk.Map[string]{"secret": "true"}},
	} {
		if diff := cmp.Diff(want, got[flag]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", flag, diff)
		}
	}
	if _, listed := got["config"]; listed || len(got) < 11 {
		t.Errorf("got %d settings, with --config: %t", len(got), listed)
	}
}
