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

// tree holds what documentation may name.
type tree struct {
	files    map[string][]string            // by each suffix of their paths, at slashes
	declared map[string]map[string]struct{} // names by Go file; of methods and fields without their type
	anywhere map[string]struct{}            // all of those, and the names of folders
	words    map[string]struct{}            // every word of the sources, except documentation
}

func readTree(t *testing.T) tree {
	t.Helper()
	x := tree{
		files: map[string][]string{}, declared: map[string]map[string]struct{}{}, anywhere: map[string]struct{}{}, words: map[string]struct{}{},
	}
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
		for _, found := range word.FindAllString(rel, -1) {
			x.words[found] = struct{}{}
		}
		if isSource(rel) {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			for _, found := range word.FindAll(text, -1) {
				x.words[string(found)] = struct{}{}
			}
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
	member     = regexp.MustCompile(`^\w+(\.\w+)*\.[A-Z]\w*[a-z]\w*$`) // a name of Go's with its package or type
	goFile     = regexp.MustCompile(`^[\w./-]+\.go$`)
	folder     = regexp.MustCompile(`^[a-z][\w-]*(/[\w-]+)+$`)
	link       = regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	picture    = regexp.MustCompile(`<(?:img|source) [^>]*src(?:set)?="([^":]+)"`)
)

// startsInTree reports whether a path begins with a folder of the tree.
func (x tree) startsInTree(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	_, ok := x.anywhere[first]
	return ok && len(x.files[first]) > 0 && !slices.Contains(foreign, name)
}

// check returns what is wrong with a page: names of files, folders and identifiers, in backquotes, that the tree does not have. An
// identifier after a Go file must be declared in that file.
func (x tree) check(page string) (wrong []string) {
	for paragraph := range strings.SplitSeq(page, "\n\n") {
		var in []string // the files that the preceding name may mean
		end := 0
		for _, at := range quoted.FindAllStringSubmatchIndex(paragraph, -1) {
			name := paragraph[at[2]:at[3]]
			if strings.TrimSpace(paragraph[end:at[0]]) != "" {
				in = nil // words separate the file from this identifier
			}
			end = at[1]
			switch {
			case goFile.MatchString(name):
				if in = x.files[name]; len(in) == 0 {
					wrong = append(wrong, "there is no file "+name)
				}
			case folder.MatchString(name) && x.startsInTree(name):
				if len(x.files[name]) == 0 {
					wrong = append(wrong, "there is no folder "+name)
				}
				in = nil
			case identifier.MatchString(name) && len(in) > 0:
				last := name[strings.LastIndex(name, ".")+1:]
				if !slices.ContainsFunc(in, func(file string) bool { _, ok := x.declared[file][last]; return ok }) {
					wrong = append(wrong, in[0]+" does not declare "+name)
				}
			case member.MatchString(name):
				last := name[strings.LastIndex(name, ".")+1:]
				if _, ok := x.anywhere[last]; !ok {
					wrong = append(wrong, "nothing declares "+name)
				}
			}
		}
	}
	return wrong
}

// isSource reports whether documentation may use the words of a file. It excludes documentation itself, this list of exceptions, and files
// that npm writes.
func isSource(rel string) bool {
	switch path.Ext(rel) {
	case ".md", ".webp", ".png", ".woff2", ".gz":
		return false
	}
	return !strings.HasPrefix(rel, "docs/") && rel != "internal/layout/docs_test.go" && path.Base(rel) != "package-lock.json"
}

var (
	word   = regexp.MustCompile(`[A-Za-z_]\w*`)
	fenced = regexp.MustCompile("(?s)```.*?```")
)

// prefixes are the namespaces and subsystems of metrics.
var prefixes = []string{"codermesh_", "codermesh_database_", "codermesh_provisionerd_", "codermesh_terraform_", "coderd_", "coderd_api_"}

// foreign lists words in backquotes that belong to other programs, or represent something the reader fills in.
var foreign = []string{
	"disableSignatureVerification", "ssl", "useHttpPath", "signoff", "iperf3", "pg_dump", "PGPASSWORD", "SYS_ADMIN", "Referer", "nf_conntrack", // other programs
	"jwks_pairs", "jwt_validation_pubkeys", "ACCESSOR", "auth_login_jwt", // Vault
	"AzureADTokenExchange", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "use_oidc", "oidc_token_file_path", "azurerm", // Azure
	"REMOTE", "HOST", "IDENTIFICATION", "HAS", "CHANGED", // OpenSSH's warning
	"coder/coder", "SUFFIX", "codermesh_VERSION_programs", "L120", "allow_user_", "go_", "process_", "_max", "_slots", "_sessions_total", "XXX", "benchtime", "Pickup", // placeholders and patterns
}

// unknownWords returns the words in backquotes that occur nowhere in the sources. A test of cmd/coder checks the variables of flags.
func (x tree) unknownWords(page string) (unknown []string) {
	for _, span := range quoted.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		for _, name := range word.FindAllString(span[1], -1) {
			if !x.knows(name) && !slices.Contains(foreign, name) && !strings.HasPrefix(name, "CODER_") {
				unknown = append(unknown, name)
			}
		}
	}
	return unknown
}

// knows reports whether the sources have a word. Metrics are declared with their namespace and subsystem apart from their name.
func (x tree) knows(name string) bool {
	if _, ok := x.words[name]; ok {
		return true
	}
	for _, prefix := range prefixes {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			if _, ok := x.words[rest]; ok {
				return true
			}
		}
	}
	return false
}

// pages returns the documentation by path. Superseded decisions are history, and may name what no longer exists.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/decisions/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no page matches %s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found[strings.TrimPrefix(filepath.ToSlash(name), "../../")] = string(text)
		}
	}
	return found
}

var replaced = regexp.MustCompile(`(?m)^(\*\*)?Replaced`)

// TestDocsNameWhatExists: the files, folders and identifiers that a page names in backquotes exist.
func TestDocsNameWhatExists(t *testing.T) {
	t.Parallel()
	x := readTree(t)
	for name, page := range pages(t) {
		if replaced.MatchString(page) {
			continue
		}
		for _, wrong := range x.check(page) {
			t.Errorf("%s: %s", name, wrong)
		}
		for _, unknown := range x.unknownWords(page) {
			t.Errorf("%s: the sources do not contain %q", name, unknown)
		}
	}
	lies := "See `tailnet/nowhere.go` and `coderd/nothing`, `tailnet/node.go` `neverWas`, and `mesh.NoSuchThing`; but `tailnet/node.go` `New` is there."
	if got := x.check(lies); len(got) != 4 {
		t.Errorf("check finds %q on a page with four mistakes", got)
	}
	if got := x.unknownWords("Set `quux_of_coder`, not `coder_agent`."); !slices.Equal(got, []string{"quux_of_coder"}) {
		t.Errorf("unknownWords finds %q on a page with one mistake", got)
	}
}

// TestLinks: pages link to files that exist, and to headings that these have, each of which has an anchor of its own.
func TestLinks(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for name, page := range all {
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			to := name
			if found[1] != "" {
				to = path.Join(path.Dir(name), found[1])
			}
			if _, err := os.Stat(filepath.Join("../..", to)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, found[1])
			} else if found[2] != "" && !slices.Contains(anchors(all[to]), found[2]) {
				t.Errorf("%s links to %s, which has no heading %s", name, to, found[2])
			}
		}
		for _, found := range picture.FindAllStringSubmatch(page, -1) {
			if _, err := os.Stat(filepath.Join("../..", path.Dir(name), found[1])); err != nil {
				t.Errorf("%s shows %s, which does not exist", name, found[1])
			}
		}
		seen := map[string]bool{}
		for _, anchor := range anchors(page) {
			if seen[anchor] {
				t.Errorf("%s has two headings with the anchor %s", name, anchor)
			}
			seen[anchor] = true
		}
	}
	if got := picture.FindStringSubmatch(`<source media="(prefers-color-scheme: dark)" srcset="docs/a.webp">`); len(got) != 2 || got[1] != "docs/a.webp" {
		t.Errorf("the picture of an element is %q", got)
	}
	if got := anchors("# A page\n\n## Who may, and when\n"); !slices.Equal(got, []string{"#a-page", "#who-may-and-when"}) {
		t.Errorf("anchors are %q", got)
	}
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) (names []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		name := strings.ToLower(heading[1])
		name = regexp.MustCompile(`[^\w -]`).ReplaceAllString(name, "")
		names = append(names, "#"+strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
