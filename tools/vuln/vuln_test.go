package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck checks a module that calls a vulnerable function of another, and one that only imports the package.
func TestCheck(t *testing.T) {
	module := func(body string) string {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"go.mod":  "module example\n\ngo 1.26\n\nrequire golang.org/x/text v0.3.6\n",
			"go.sum":  "golang.org/x/text v0.3.6 h1:aRYxNxv6iGQlyVaZmk6ZgYEDa+Jg18DxebPSrd6bg1M=\ngolang.org/x/text v0.3.6/go.mod h1:5Zoc/QRtKVWzQhOtBMvqHzDpF6irO9z98xDceosuGiQ=\n",
			"main.go": "package main\n\nimport \"golang.org/x/text/language\"\n\nfunc main() { " + body + " }\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	found, err := check(t.Context(), module(`language.ParseAcceptLanguage("en")`), "", []string{"."})
	if err != nil || len(found) == 0 || found[0].Module != "golang.org/x/text" || found[0].Caller != "main.go:5" || found[0].Fixed == "" {
		t.Errorf("a call: %+v, %v", found, err)
	}
	found, err = check(t.Context(), module("_ = language.English"), "", []string{"."})
	for _, f := range found {
		if f.Module != "stdlib" {
			t.Errorf("an import: %+v", f)
		}
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := check(t.Context(), module("syntax error"), "", []string{"."}); err == nil {
		t.Error("a module that does not compile is clean")
	}
}

func TestParse(t *testing.T) {
	found, err := parse(strings.NewReader(`{"config":{"protocol_version":"v1.0.0"}}
{"finding":{"osv":"GO-1","fixed_version":"v1.2.3","trace":[{"module":"example.com/a","version":"v1.0.0"}]}}
{"finding":{"osv":"GO-1","fixed_version":"v1.2.3","trace":[{"module":"example.com/a","version":"v1.0.0","package":"example.com/a/b"}]}}
{"finding":{"osv":"GO-2","trace":[{"module":"stdlib","version":"v1.26.8","package":"html/template","receiver":"Template","function":"Execute"},{"module":"m","package":"m/n","function":"Run","position":{"filename":"n/n.go","line":7}}]}}
{"finding":{"osv":"GO-2","trace":[{"module":"stdlib","version":"v1.26.8","package":"html/template","function":"Other"}]}}
{"finding":{"osv":"GO-3","fixed_version":"v1.2.3","trace":[{"module":"example.com/a","version":"v1.0.0","package":"example.com/a/b","function":"F"},{"module":"m","package":"m","function":"main"}]}}
`))
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, test := range []struct {
		standard bool
		want     string
	}{
		{false, "GO-3: m.main calls example.com/a/b.F of example.com/a v1.0.0; v1.2.3 is not affected\n  https://pkg.go.dev/vuln/GO-3\n" +
			"Known vulnerabilities in the standard library of the installed Go: 1. Releases are built with another, see the Makefile.\n"},
		{true, "GO-2: n/n.go:7 calls html/template.Template.Execute of stdlib v1.26.8\n  https://pkg.go.dev/vuln/GO-2\n" +
			"GO-3: m.main calls example.com/a/b.F of example.com/a v1.0.0; v1.2.3 is not affected\n  https://pkg.go.dev/vuln/GO-3\n"},
	} {
		var out strings.Builder
		if report(&out, found, test.standard) || out.String() != test.want {
			t.Errorf("standard %v: printed %q", test.standard, out.String())
		}
	}
	if !report(new(strings.Builder), found[:1], false) {
		t.Error("the standard library counts")
	}
	if _, err := parse(strings.NewReader(`{"finding":`)); err == nil {
		t.Error("half of the findings are enough")
	}
}
