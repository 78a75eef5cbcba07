package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tree is what documentation may name.
type tree struct {
	files    map[string][]string            // by each suffix of their paths, at slashes
	declared map[string]map[string]struct{} // names by Go file; of methods and fields without their type
	anywhere map[string]struct{}            // all of those, and the names of folders
}

func readTree(t *testing.T) tree {
	t.Helper()
	x := tree{files: map[string][]string{}, declared: map[string]map[string]struct{}{}, anywhere: map[string]struct{}{}}
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && (base == "node_modules" || base == ".git" || base == "build") {
			return fs.SkipDir
		}
		rel, err := filepath.Rel("../..", name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		parts := strings.Split(rel, "/")
		for i := range parts {
			suffix := path.Join(parts[i:]...)
			x.files[suffix] = append(x.files[suffix], rel)
		}
		if entry.IsDir() {
			x.anywhere[base] = struct{}{}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		names := map[string]struct{}{}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names[n.Name.Name] = struct{}{}
			case *ast.TypeSpec:
				names[n.Name.Name] = struct{}{}
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names[name.Name] = struct{}{}
				}
			case *ast.Field:
				for _, name := range n.Names {
					names[name.Name] = struct{}{}
				}
			}
			return true
		})
		x.declared[rel] = names
		for name := range names {
			x.anywhere[name] = struct{}{}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

var (
	identifier = regexp.MustCompile(`^([A-Za-z_]\w*\.)*[A-Za-z_]\w*$`)
	goFile     = regexp.MustCompile(`^[\w./-]+\.go$`)
	folder     = regexp.MustCompile(`^[a-z][\w-]*(/[\w-]+)+$`)
	link       = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
)

// check returns what is wrong with a page: names of files, folders and identifiers, in backquotes, that the tree does not have. An
// identifier behind a Go file must be declared in that file.
func (x tree) check(page string) (wrong []string) {
	for paragraph := range strings.SplitSeq(page, "\n\n") {
		var in []string // the files that the name before may mean
		end := 0
		for _, at := range quoted.FindAllStringSubmatchIndex(paragraph, -1) {
			name := paragraph[at[2]:at[3]]
			if strings.TrimSpace(paragraph[end:at[0]]) != "" {
				in = nil // words are between the file and this
			}
			end = at[1]
			switch {
			case goFile.MatchString(name):
				if in = x.files[name]; len(in) == 0 {
					wrong = append(wrong, "there is no file "+name)
				}
			case folder.MatchString(name):
				if len(x.files[name]) == 0 {
					wrong = append(wrong, "there is no folder "+name)
				}
				in = nil
			case identifier.MatchString(name) && len(in) > 0:
				last := name[strings.LastIndex(name, ".")+1:]
				if !slices.ContainsFunc(in, func(file string) bool { _, ok := x.declared[file][last]; return ok }) {
					wrong = append(wrong, in[0]+" does not declare "+name)
				}
			case identifier.MatchString(name) && strings.ContainsAny(name, ".ABCDEFGHIJKLMNOPQRSTUVWXYZ") && strings.ToUpper(name) != name:
				last := name[strings.LastIndex(name, ".")+1:]
				if _, ok := x.anywhere[last]; !ok && len(x.files[name]) == 0 {
					wrong = append(wrong, "nothing declares "+name)
				}
			}
		}
	}
	return wrong
}

// TestArchitectureIsThere: what docs/architecture.md names exists.
func TestArchitectureIsThere(t *testing.T) {
	t.Parallel()
	x := readTree(t)
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range x.check(string(page)) {
		t.Errorf("docs/architecture.md: %s", wrong)
	}
	lies := "See `tailnet/nowhere.go` and `coderd/nothing`, `tailnet/node.go` `neverWas`, and `mesh.NoSuchThing`; but `tailnet/node.go` `New` is there."
	if got := x.check(lies); len(got) != 4 {
		t.Errorf("of a page with four mistakes the test finds %q", got)
	}
}

// TestLinks: pages link to files that exist.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := []string{"../../README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), found[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", page, found[1])
			}
		}
	}
}
