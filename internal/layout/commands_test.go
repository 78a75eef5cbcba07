package layout_test

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

var (
	// command matches the beginning of a command in a text: at its start, behind a colon, a pipe or a parenthesis, and what is to be run.
	command = regexp.MustCompile("(?:^ *|[`'\"(:|=] ?|\\brun )(?:coder [a-z]|(?:git|ssh|scp|rm|mv|cp|cat|curl|sudo|chmod|tar|openssl|printf|kill|ls) [^ ])")
	// verb matches a verb of a format, with its argument's number and its letter.
	verb = regexp.MustCompile(`%(?:\[(\d+)\])?[-+# 0]*[\d.*]*([a-zA-Z%])`)
	// sentence matches a hint that begins with prose.
	sentence = regexp.MustCompile(`^[A-Z]`)
	// isWord matches what a command may contain: quoted words, what our own commands are called, and the variables below.
	isWord = regexp.MustCompile(`^shell\.(Word|POSIX)\(|\.(CommandPath|UseLine)\(\)$|^(` + madeOfWords + `)$`)
)

// madeOfWords are expressions, as regular expressions, that hold whole commands, words that were quoted before, or the program's own names.
const madeOfWords = `again|hint|word|left\.try|kind\.(example|name)|verb|a\.Name|f\.(Network|Remote)|legacy\.Version|w\.ID` +
	`|strings\.Join\((words|ids), " "\)|strings\.Join\(near, " or " \+ cmd\.CommandPath\(\) \+ " "\)`

// TestCommandsQuoteWords checks every command that the programs and servers suggest: in hints, messages, details of errors and examples. What a
// server, a template or a user named is a quoted word in it, because people copy commands into their shells.
func TestCommandsQuoteWords(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == "node_modules" || e.Name() == "tools" || e.Name() == "bench" || strings.HasPrefix(e.Name(), ".") && len(e.Name()) > 2) {
			return filepath.SkipDir
		}
		if e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, word := range wordsOf(n) {
				found++
				if text := types.ExprString(word); !isWord.MatchString(text) {
					t.Errorf("%s: %s is part of a command and not quoted: use shell.Word, or shell.POSIX in servers", files.Position(word.Pos()), text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || found < 100 {
		t.Fatalf("%d words, %v", found, err)
	}
}

// wordsOf returns the expressions that become part of a command in a call with a format, or behind a text that ends in a command.
func wordsOf(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		before := n.X
		if sum, ok := before.(*ast.BinaryExpr); ok {
			before = sum.Y
		}
		text, ok := constant(before)
		if example := strings.HasPrefix(text, "  "); ok && !example && n.Op == token.ADD && strings.HasSuffix(text, " ") && command.MatchString(text) {
			if _, fixed := constant(n.Y); !fixed {
				return []ast.Expr{n.Y}
			}
		}
	case *ast.CallExpr:
		hint := types.ExprString(n.Fun) == "exit.Try"
		for i, arg := range n.Args {
			if format, ok := constant(arg); ok {
				if words := ofFormat(format, n.Args[i+1:], hint); len(words) > 0 {
					return words
				}
			}
		}
	}
	return nil
}

// ofFormat returns the arguments of a format that become part of its command. A hint that is no sentence is a command as a whole.
func ofFormat(format string, args []ast.Expr, hint bool) (words []ast.Expr) {
	from := len(format)
	if at := command.FindStringIndex(format); at != nil {
		from = at[0]
	}
	if hint && !sentence.MatchString(format) {
		from = 0
	}
	next := 0
	for _, m := range verb.FindAllStringSubmatchIndex(format, -1) {
		letter := format[m[4]:m[5]]
		if letter == "%" {
			continue
		}
		if m[2] >= 0 {
			number, err := strconv.Atoi(format[m[2]:m[3]])
			if err != nil {
				return nil
			}
			next = number - 1
		}
		if m[0] >= from && next < len(args) && letter != "d" && letter != "w" {
			if _, fixed := constant(args[next]); !fixed {
				words = append(words, args[next])
			}
		}
		next++
	}
	return words
}

// constant returns the text of a literal, or of a sum of literals.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := constant(e.X)
		right, also := constant(e.Y)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}

// TestCommandsAreFound shows which words of a call count.
func TestCommandsAreFound(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`exit.Try(err, "coder ssh %s", name)`:                           "name",
		`exit.Try(err, "--org %s", name)`:                               "name",
		`exit.Try(err, "Did you mean %s? List them: coder list", near)`: "",
		`exit.Try(err, "Did you mean %s? Run: coder show %s", near, x)`: "x",
		`f("Wrote %s. Next: " + "coder show %s -n %d", a, b, 1)`:        "b",
		`f(out, "%[2]s runs: coder restart %[1]s", a, b)`:               "a",
		`f("Run: chmod 600 " + path)`:                                   "path",
		`f("the file " + path)`:                                         "",
		`f("read git key: %w", err)`:                                    "",
		`f("coder login %s", "https://coder.example.com")`:              "",
		`f("Run: coder show %d%% %s", 1, x)`:                            "x",
		`f("To let git in at %s, say so", x)`:                           "",
		`f("  coder show " + name)`:                                     "",
	} {
		e, err := parser.ParseExpr(source)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		ast.Inspect(e, func(n ast.Node) bool {
			for _, word := range wordsOf(n) {
				got = append(got, types.ExprString(word))
			}
			return true
		})
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}
