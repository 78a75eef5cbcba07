package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
)

// words are expressions that a command in a hint may contain as they are: what is quoted for a shell, names that the program or the server has
// checked, numbers, and whole commands, which are made of such words.
var words = regexp.MustCompile(`^exit\.Word\(|\.(\w*Name|FullName\(\)|CommandPath\(\)|UseLine\(\)|URL\(\))\)?$|^(near|names\[0\]|again|hint|left\.try|kind\.example)$` +
	`|^strings\.Join\(names?, |^strings\.Join\(near, |^cmp\.Or\(near, |^int\(|^f\.(Network|Remote)$`)

// TestHintsQuoteWords checks that each command that an error suggests quotes paths and what users typed, which a shell would split or expand.
func TestHintsQuoteWords(t *testing.T) {
	found := 0
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || types.ExprString(call.Fun) != "exit.Try" || len(call.Args) < 3 {
				return true
			}
			format := types.ExprString(call.Args[1])
			if sentence := regexp.MustCompile(`^"[A-Z][^:]*$`); sentence.MatchString(format) {
				return true // no command
			}
			for _, arg := range call.Args[2:] {
				found++
				if text := types.ExprString(arg); !words.MatchString(text) {
					t.Errorf("%s: exit.Try(…, %s, …): %s is not quoted, use exit.Word", files.Position(arg.Pos()), format, text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || found < 50 {
		t.Fatalf("%d words, %v", found, err)
	}
}

func TestWord(t *testing.T) {
	for word, want := range map[string]string{
		"/srv/a-b_c.d": "/srv/a-b_c.d", "ann/dev": "ann/dev", "https://coder.example.com:8443/": "https://coder.example.com:8443/", "größe": "größe",
		"": "''", "my templates": "'my templates'", "$(reboot)": "'$(reboot)'", "it's": `'it'\''s'`, "~/x": "'~/x'", "a\nb": "'a\nb'", "a;b": "'a;b'", "*": "'*'",
	} {
		if got := exit.Word(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}
