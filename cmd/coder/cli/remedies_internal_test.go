package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// remedies are all suggestions that stop, restart, replace or remove something, with what proves their cause. A new one must be added with
// its proof: a network that fails must never suggest to end work that goes on.
var remedies = map[string]string{
	"Remove the marked lines by hand.":                                          "the file was read and its marked part is broken",
	"Restart one of them with another --name.":                                  "the server listed two provisioners of that name; their jobs end before they do",
	"Remove the file. The next connection creates a new key.":                   "the file was read and is not a key",
	"Restart the workspace or update coder: coder restart %s":                   "the preamble of the agent was read and names another version",
	"coder templates consent revoke %s":                                         "the server listed several consents; the user asked to revoke one",
	"Restart the workspace, so that it gets the server's version of the agent.": "the agent answered, without what was asked",
	"coder secret update --help":                                                "prints a help text",
	"git update-index --chmod=+x %s":                                            "the file's mode was read",
	"coder devices remove %s":                                                   "the device was added by this command, and its private key could not be stored",
	"rm %s":                                                                     "the system said that the link leads to a file that does not exist",
	"git -C %s pull":                                                            "changes nothing that is not committed: git refuses otherwise",
	"%s %s --permission template:update":                                        "an example of a flag",
	"--permission template:update":                                              "an example of a flag",
}

var (
	drastic = regexp.MustCompile(`(?i)\b(stop|delete|restart|recreate|remove|rm|rebuild|kill|reset|forget|replace|overwrite|discard|prune|cancel|force|logout|reboot|update|update-index|pull|revoke|rotate|terminate|close)\b`)
	text    = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")
)

// TestRemediesHaveProof lists every suggestion of this program that ends or removes something.
func TestRemediesHaveProof(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	calls := 0
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
			if !ok || types.ExprString(call.Fun) != "exit.Try" || len(call.Args) < 2 {
				return true
			}
			calls++
			for _, literal := range text.FindAllString(types.ExprString(call.Args[1]), -1) {
				hint, err := strconv.Unquote(literal)
				if err != nil {
					t.Errorf("%s: %s: %v", files.Position(call.Pos()), literal, err)
				}
				if !drastic.MatchString(hint) {
					continue
				}
				if found[hint] = true; remedies[hint] == "" {
					t.Errorf("%s: %q ends or removes something: add what proves its cause to remedies", files.Position(call.Pos()), hint)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || calls < 100 {
		t.Fatalf("%d suggestions, %v", calls, err)
	}
	for hint := range remedies {
		if !found[hint] {
			t.Errorf("nothing suggests %q any more", hint)
		}
	}
}
