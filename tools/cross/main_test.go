package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module of two packages, and returns its folder. Files replace or add to its own.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	all := map[string]string{
		"go.mod":              "module example.com/m\n\ngo 1.26\n",
		"main.go":             "package main\n\nimport \"example.com/m/part\"\n\nfunc main() { part.Do() }\n",
		"part/part.go":        "package part\n\nfunc Do() { do() }\n",
		"part/do_unix.go":     "//go:build unix\n\npackage part\n\nfunc do() {}\n",
		"part/do_windows.go":  "package part\n\nfunc do() {}\n",
		"other/other_unix.go": "//go:build unix\n\npackage other\n",
	}
	maps.Copy(all, files)
	dir := t.TempDir()
	for name, text := range all {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files   map[string]string
		targets []string
		pattern string
		want    []string // of what is printed, or of the error
	}{
		"good":              {nil, []string{"windows-amd64", "darwin-arm64"}, ".", []string{"windows-amd64: packages that compile: 2, mistakes: 0\ndarwin-arm64: packages that compile: 2, mistakes: 0\n"}},
		"one system":        {map[string]string{"part/do_windows.go": "package part\n\nfunc do() { undefined() }\n"}, []string{"windows-amd64", "darwin-arm64"}, ".", []string{"windows-amd64: packages that compile: 1, mistakes: 1\n", "part/do_windows.go:3:13: undefined: undefined\n", "darwin-arm64: packages that compile: 2, mistakes: 0\n", "some packages do not compile"}},
		"missing function":  {map[string]string{"part/do_windows.go": "package part\n"}, []string{"windows-arm64"}, ".", []string{"part/part.go:3:13: undefined: do\n", "some packages do not compile"}},
		"syntax":            {map[string]string{"part/do_windows.go": "package part\n\nfunc do() {\n"}, []string{"windows-amd64"}, ".", []string{"part/do_windows.go:3:", "some packages do not compile"}},
		"missing package":   {map[string]string{"part/do_windows.go": "package part\n\nimport \"example.com/m/none\"\n\nfunc do() { none.Do() }\n"}, []string{"windows-amd64"}, ".", []string{"example.com/m/none", "some packages do not compile"}},
		"no files":          {nil, []string{"windows-amd64"}, "./other", []string{"build constraints exclude all Go files", "some packages do not compile"}},
		"no package":        {nil, []string{"windows-amd64"}, "./none", []string{"none", "some packages do not compile"}},
		"another module":    {nil, []string{"windows-amd64"}, "strings", []string{"strings names no package of the module"}},
		"no target":         {nil, nil, ".", []string{"name a target"}},
		"incomplete target": {nil, []string{"windows"}, ".", []string{`a target looks like "windows-amd64"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			err := options{dir: module(t, tt.files), targets: tt.targets}.run(t.Context(), &out, []string{tt.pattern})
			if err != nil {
				out.WriteString(err.Error())
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("got %q, want %q in it", out.String(), want)
				}
			}
			if name == "good" && out.String() != tt.want[0] {
				t.Errorf("got %q, want %q", out.String(), tt.want[0])
			}
		})
	}
}

// TestRunTests finds a mistake in a test for one system, and leaves tests alone unless it is asked for them.
func TestRunTests(t *testing.T) {
	t.Parallel()
	dir := module(t, map[string]string{
		"part/part_test.go":        "package part\n\nimport \"testing\"\n\nfunc TestDo(*testing.T) { helper() }\n",
		"part/helper_unix_test.go": "//go:build unix\n\npackage part\n\nfunc helper() {}\n",
	})
	for _, tt := range []struct {
		target string
		tests  bool
		want   string // "" if nothing is wrong
	}{
		{"windows-amd64", false, ""}, {"darwin-arm64", true, ""},
		{"windows-amd64", true, "part/part_test.go:5:27: undefined: helper\n"},
	} {
		var out strings.Builder
		err := options{dir: dir, targets: []string{tt.target}, tests: tt.tests}.run(t.Context(), &out, []string{"./part"})
		if (err != nil) != (tt.want != "") || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s, tests %t: %v, %q; want %q", tt.target, tt.tests, err, out.String(), tt.want)
		}
	}
}
