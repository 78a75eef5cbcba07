package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRender(t *testing.T) {
	t.Parallel()
	one := folder(t, map[string]string{"LICENSE": "free\r\n", "NOTICE.txt": "made by One\n", "license.go": "package one", "below/COPYING": "also free"})
	two := folder(t, map[string]string{"LICENCE.md": "free\n"})
	bare := folder(t, map[string]string{"README.md": "free"})
	got, err := render([]work{
		{name: "two 2", dirs: []string{two}}, {name: "one 1", dirs: []string{one, filepath.Join(one, "below"), one}}, {name: "zero 0", dirs: []string{bare}, declared: "It declares so."},
	})
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("=", 80)
	want := "\n" + line + "\n\none 1\n\nalso free\n\n" + line + "\n\none 1\n\nmade by One\n\n" + line + "\n\none 1\ntwo 2\n\nfree\n\n" + line + "\n\nzero 0\n\nIt declares so.\n"
	if !strings.HasSuffix(string(got), want) {
		t.Errorf("got:\n%s\nwant the end:\n%s", got, want)
	}
	if _, err := render([]work{{name: "bare 3", dirs: []string{bare}}}); err == nil || err.Error() != "bare 3 has no license file" {
		t.Errorf("something without a license: %v", err)
	}
}

func TestPackages(t *testing.T) {
	t.Parallel()
	lock := `{"packages": {"": {"version": "1"}, "node_modules/react": {"version": "19.0.0"}, "node_modules/vite": {"version": "7.0.0", "dev": true},
		"node_modules/a/node_modules/@b/c": {"version": "2.0.0"}, "node_modules/for-others": {"version": "3.0.0", "optional": true}}}`
	site := folder(t, map[string]string{"package-lock.json": lock, "node_modules/react/LICENSE": "MIT", "node_modules/a/node_modules/@b/c/LICENSE": "ISC"})
	found, err := npm(site)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, w := range found {
		got[w.name] = true
	}
	if len(got) != 2 || !got["react 19.0.0"] || !got["@b/c 2.0.0"] {
		t.Errorf("got %v", got)
	}
}

// TestModules lists what this program's own dependencies would be: none but the standard library.
func TestModules(t *testing.T) {
	t.Parallel()
	found, err := modules("..", "windows-amd64", "", []string{"./notices"})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || !strings.HasPrefix(found[0].name, "Go's standard library 1.") {
		t.Errorf("got %v", found)
	}
	if _, err := render(found); err != nil {
		t.Error(err)
	}
}
