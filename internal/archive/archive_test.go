package archive_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/archive"
)

// entry is a file, or a link when it has a target.
type entry struct{ name, target string }

func check(entries []entry) error {
	var names archive.Names
	for _, e := range entries {
		var err error
		if e.target == "" {
			err = names.Add(e.name)
		} else {
			err = names.AddLink(e.name, e.target)
		}
		if err != nil {
			return err
		}
	}
	return names.Check()
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries []entry
		err     string // "": accepted
	}{
		"files":               {[]entry{{"main.tf", ""}, {"./a/b", ""}, {".", ""}}, ""},
		"link":                {[]entry{{"a/b", ""}, {"c", "a/b"}, {"a/d", "../c"}}, ""},
		"link to a folder":    {[]entry{{"a/b", ""}, {"c", "a"}, {"d", "./a/"}}, ""},
		"link to a link":      {[]entry{{"a", ""}, {"b", "a"}, {"c", "b"}}, ""},
		"absolute":            {[]entry{{"/etc/x", ""}}, "outside"},
		"above":               {[]entry{{"../x", ""}}, "outside"},
		"backslash":           {[]entry{{`..\x`, ""}}, "outside"},
		"absolute link":       {[]entry{{"a", "/etc/shadow"}}, "outside"},
		"link above":          {[]entry{{"a", "../x"}}, "outside"},
		"two links":           {[]entry{{"a/x", ""}, {"a/up", ".."}, {"l0", "a/up/.."}}, `passes through the link "a/up"`},
		"two links, reversed": {[]entry{{"l0", "a/up/.."}, {"a/up", ".."}}, `passes through the link "a/up"`},
		"dot after a link":    {[]entry{{"a", "."}, {"b", "a/./x"}}, "passes through"},
		"slash after a link":  {[]entry{{"a", "."}, {"b", "a/"}}, "passes through"},
		"below a link":        {[]entry{{"a", "b"}, {"a/c", ""}}, "lies below the link"},
		"git":                 {[]entry{{"a/.git/config", ""}}, `"a/.git/config" changes how git works: leave .git out`},
		"git, a file":         {[]entry{{".git", ""}}, "changes how git works"},
		"git, other case":     {[]entry{{".GIT/config", ""}}, "changes how git works"},
		"git, a link":         {[]entry{{"x", ""}, {".git", "x"}}, "changes how git works"},
		"git's settings":      {[]entry{{"home/.gitconfig", ""}}, "changes how git works"},
		"Mercurial":           {[]entry{{".hg/hgrc", ""}}, "changes how Mercurial works"},
		"Terraform":           {[]entry{{"terraform.rc", ""}}, "changes how Terraform works"},
		"Terraform's file":    {[]entry{{"./.terraformrc", ""}}, "changes how Terraform works"},
		"netrc":               {[]entry{{".netrc", ""}}, "changes how git and Terraform"},
		"SSH":                 {[]entry{{".ssh/config", ""}}, "changes how SSH works"},
		"curl":                {[]entry{{".curlrc", ""}}, "changes how curl works"},
		"wget":                {[]entry{{".wgetrc", ""}}, "changes how wget works"},
		"bare repository":     {[]entry{{"config", ""}, {"HEAD", ""}, {"objects/x", ""}, {"refs/x", ""}}, "makes its folder a git repository"},
		"objects, no HEAD":    {[]entry{{"config", ""}, {"objects/x", ""}, {"HEAD.md", ""}}, ""},
		"HEAD elsewhere":      {[]entry{{"a/objects/x", ""}, {"b/HEAD", ""}}, ""},
		"bare worktree":       {[]entry{{"a/HEAD", ""}, {"a/commondir", ""}}, "makes its folder a git repository"},
		"git, dropped":        {[]entry{{".terraform/modules/m/.git/config", ""}}, ""},
		"git, harmless":       {[]entry{{".gitignore", ""}, {".gitattributes", ""}, {".github/workflows/x.yml", ""}, {"gitconfig", ""}, {"HEAD", ""}, {"objects.tf", ""}}, ""},
		"long":                {[]entry{{"a", strings.Repeat("b", 5000)}}, "outside"},
	} {
		err := check(c.entries)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: got %v, want %q", name, err, c.err)
		}
	}
}

// FuzzLinks creates the accepted links: none of them may lead outside of the folder.
func FuzzLinks(f *testing.F) {
	f.Add("a/up\x01..\nl0\x01a/up/..\nl1\x01l0/..")
	f.Add("a/b\na/c\x01b\nd\x01a/c")
	f.Add("a\x01.\nb\x01a/..")
	f.Fuzz(func(t *testing.T, text string) {
		var entries []entry
		for line := range strings.SplitSeq(text, "\n") {
			name, target, _ := strings.Cut(line, "\x01")
			entries = append(entries, entry{name, target})
		}
		if check(entries) != nil {
			return
		}
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		inside := filepath.Join(dir, "inside")
		if err := os.Mkdir(inside, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries { // ignore entries that cannot be created, because names are too long or are taken
			path := filepath.Join(inside, e.name)
			if e.target == "" {
				_ = os.MkdirAll(path, 0o755)
				continue
			}
			_ = os.MkdirAll(filepath.Dir(path), 0o755)
			_ = os.Symlink(e.target, path)
		}
		for _, e := range entries {
			if to, err := filepath.EvalSymlinks(filepath.Join(inside, e.name)); err == nil && to != inside && !strings.HasPrefix(to, inside+"/") {
				t.Errorf("%q leads to %q", e.name, to)
			}
		}
	})
}
