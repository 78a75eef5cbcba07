package layout_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A tableOfTests is a section whose tables list promises, and in the last cell of each row the tests that hold them.
type tableOfTests struct {
	file, section string
	header        string // the first row of each table
	rows          int    // at least
}

// tablesOfTests are the sections that TestTablesNameTests checks.
var tablesOfTests = []tableOfTests{
	{"security.md", "## Attacks and the tests that hold them", attackHeader, 60},
	{"faults.md", "## Faults and the tests that hold them", "| fault | promise | figure | test |", 40},
}

const attackHeader = "| attack | promise | result | test |"

// namedTest is one test in the last cell of a row: a function or a file, and the folder that has it.
var namedTest = regexp.MustCompile("^`([^`/]+)(?:/([^`]+))?` \\(`([\\w./-]+)`\\)")

// TestTablesNameTests checks that every row of these tables is complete and names tests that exist.
func TestTablesNameTests(t *testing.T) {
	t.Parallel()
	for _, table := range tablesOfTests {
		t.Run(table.file, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join("../../docs", table.file))
			if err != nil {
				t.Fatal(err)
			}
			_, section, ok := strings.Cut(string(data), "\n"+table.section+"\n")
			if !ok {
				t.Fatalf("there is no section %q", table.section)
			}
			if before, _, more := strings.Cut(section, "\n## "); more {
				section = before
			}
			rows, wrong := checkTable(section, table.header, "../..")
			for _, problem := range wrong {
				t.Error(problem)
			}
			if rows < table.rows {
				t.Errorf("there are only %d rows", rows)
			}
		})
	}
}

// TestTableRefuses shows that each way in which a row can be hollow is found.
func TestTableRefuses(t *testing.T) {
	t.Parallel()
	const row = "| reading the table | rows hold | repelled | "
	for name, c := range map[string]struct {
		row  string
		want string // empty: the row is good
	}{
		"function":            {row + "`TestTableRefuses` (`internal/layout`) |", ""},
		"its case":            {row + "`TestTableRefuses/its case` (`internal/layout`) |", ""},
		"two":                 {row + "`TestTableRefuses` (`internal/layout`), `signin.txtar` (`e2e/testdata`) |", ""},
		"file":                {row + "`session.test.ts` (`site/e2e`) |", ""},
		"three cells":         {"| attack | promise | result |", "has 3 cells"},
		"no promise":          {"| attack |  | repelled | `TestTableRefuses` (`internal/layout`) |", "empty cell"},
		"no test":             {row + " |", "empty cell"},
		"words":               {row + "see the code |", "instead of a test"},
		"no folder":           {row + "`TestTableRefuses` |", "instead of a test"},
		"words behind":        {row + "`TestTableRefuses` (`internal/layout`) and more |", "instead of a test"},
		"unknown function":    {row + "`TestNowhere` (`internal/layout`) |", "no function TestNowhere"},
		"unknown case":        {row + "`TestTableRefuses/no" + " such case` (`internal/layout`) |", "no case"},
		"unknown folder":      {row + "`TestTableRefuses` (`internal/nowhere`) |", "no such folder"},
		"not a test":          {row + "`checkTable` (`internal/layout`) |", "neither a test nor a file"},
		"helper's name":       {row + "`TestingNothing` (`internal/layout`) |", "neither a test nor a file"},
		"unknown file":        {row + "`nosuch.txtar` (`e2e/testdata`) |", "no file"},
		"folder of elsewhere": {row + "`passwd.txtar` (`../../etc`) |", "no such folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, wrong := checkTable(attackHeader+"\n|---|---|---|---|\n"+c.row+"\n", attackHeader, "../..")
			if n != 1 || (len(wrong) == 0) != (c.want == "") || !strings.Contains(strings.Join(wrong, "\n"), c.want) {
				t.Errorf("%d rows, %q; want one row and %q", n, wrong, c.want)
			}
		})
	}
}

// checkTable returns the number of rows in the tables of a section, and what is wrong with them. Folders are relative to root.
func checkTable(section, header, root string) (rows int, wrong []string) {
	found := map[string]map[string]map[string]struct{}{} // by folder and test, the texts that its file has
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || line == header || strings.Trim(line, "|- ") == "" {
			continue
		}
		rows++
		bad := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("row %q ", line)+fmt.Sprintf(format, args...))
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if len(cells) != 4 {
			bad("has %d cells, want %s", len(cells), header)
			continue
		}
		empty := false
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
			empty = empty || cells[i] == ""
		}
		if empty {
			bad("has an empty cell")
			continue
		}
		for rest := cells[3]; rest != ""; {
			m := namedTest.FindStringSubmatch(rest)
			if m == nil || len(m[0]) < len(rest) && !strings.HasPrefix(rest[len(m[0]):], ", ") {
				bad("has %q instead of a test: name it as `TestName` (`folder`)", rest)
				break
			}
			rest = strings.TrimPrefix(rest[len(m[0]):], ", ")
			if problem := checkNamedTest(m[1], m[2], m[3], root, found); problem != "" {
				bad("names a test that does not exist: %s", problem)
			}
		}
	}
	return rows, wrong
}

// checkNamedTest returns why a folder does not have a test, or "".
func checkNamedTest(name, subtest, folder, root string, found map[string]map[string]map[string]struct{}) string {
	dir := filepath.Join(root, folder)
	if info, err := os.Stat(dir); !filepath.IsLocal(folder) || err != nil || !info.IsDir() {
		return "no such folder: " + folder
	}
	if strings.HasSuffix(name, ".txtar") || strings.HasSuffix(name, ".test.ts") || strings.HasSuffix(name, ".test.tsx") {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.Mode().IsRegular() {
			return fmt.Sprintf("no file %s in %s", name, folder)
		}
		return ""
	}
	if !isTest(name) {
		return name + " is neither a test nor a file of tests"
	}
	if found[folder] == nil {
		tests, err := testsOf(dir)
		if err != nil {
			return err.Error()
		}
		found[folder] = tests
	}
	texts, ok := found[folder][name]
	if !ok {
		return fmt.Sprintf("no function %s in %s", name, folder)
	}
	if _, ok := texts[subtest]; !ok && subtest != "" {
		return fmt.Sprintf("no case %q in the file of %s in %s", subtest, name, folder)
	}
	return ""
}

// isTest reports whether the go command takes a function of this name for a test or fuzz target.
func isTest(name string) bool {
	for _, prefix := range []string{"Test", "Fuzz"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" && (rest[0] < 'a' || rest[0] > 'z') {
			return true
		}
	}
	return false
}

// testsOf returns a folder's tests, each with the string literals of its file, of which a subtest's name is one.
func testsOf(dir string) (map[string]map[string]struct{}, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	tests := map[string]map[string]struct{}{}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		texts := map[string]struct{}{}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					texts[text] = struct{}{}
				}
			}
			return true
		})
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && isTest(f.Name.Name) {
				tests[f.Name.Name] = texts
			}
		}
	}
	return tests, nil
}
