package layout_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// alone are the leaves below internal that one part of the program uses, and why they are not in that part.
var alone = map[string]string{
	"internal/certs":   "a leaf below it, certs/acme, is coderd's too",
	"internal/rpcwire": "two services use it that must not know each other",
	"internal/webhook": "two services use it that must not know each other",
}

// TestLeavesAreShared checks that a package below internal, which every other one may use, is used by more than one part of the program: what only
// one part needs belongs to that part. Packages for tests are exempt, and commands have no place there.
func TestLeavesAreShared(t *testing.T) {
	t.Parallel()
	users := map[string]map[string]bool{}
	for _, p := range list(t, "./...") {
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if below(path, "internal") && users[path] == nil {
			users[path] = map[string]bool{}
		}
		part, _, _ := strings.Cut(path, "/")
		for _, imported := range p.Imports {
			own, ok := strings.CutPrefix(imported, module+"/")
			if !ok || !below(own, "internal") {
				continue
			}
			if users[own] == nil {
				users[own] = map[string]bool{}
			}
			users[own][part] = true
		}
	}
	for path, parts := range users {
		_, excused := alone[path]
		switch {
		case path == "internal/layout" || forTests(path):
		case len(parts) == 0:
			t.Errorf("no package uses %s: a command belongs to cmd or tools", path)
		case len(parts) == 1 && !excused:
			t.Errorf("only %s uses %s: move it there, or say in this test why not", slices.Collect(maps.Keys(parts))[0], path)
		case len(parts) > 1 && excused:
			t.Errorf("%s is used by several parts: take it out of the exceptions of this test", path)
		}
	}
	for path := range alone {
		if users[path] == nil {
			t.Errorf("there is no package %s", path)
		}
	}
}
