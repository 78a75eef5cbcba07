package terraform_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// linked returns a template with files and links by name.
func linked(t *testing.T, content, links map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	put := func(h tar.Header, text string) {
		h.Mode, h.Size = 0o644, int64(len(text))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range content {
		put(tar.Header{Name: name, Typeflag: tar.TypeReg}, text)
	}
	for name, target := range links {
		put(tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}, "")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestLinksOutside uses links whose targets stay inside, one by one, but lead outside together: to a file of the server, and to an endless
// device.
func TestLinksOutside(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for _, target := range []string{"etc/shadow", "dev/zero"} {
		links := map[string]string{"a/up": "..", "l0": "a/up/..", "README.md": "l11/" + target}
		for n := range 11 {
			links[fmt.Sprintf("l%d", n+1)] = fmt.Sprintf("l%d/..", n)
		}
		j := newTrial(t, nil)
		j.source = linked(t, files(""), links)
		result := j.importIt(e, &provisionerpb.TemplateImport{})
		if !strings.Contains(result.GetError(), "passes through the link") || result.GetTemplateImport().GetReadme() != "" {
			t.Errorf("%s: error %q, readme %.40q", target, result.GetError(), result.GetTemplateImport().GetReadme())
		}
	}
}

// TestLinksInside checks an owner's legitimate use of links.
func TestLinksInside(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	j := newTrial(t, nil)
	j.source = linked(t, map[string]string{"docs/README.md": "# Mine", "shared/main.tf": files("")["main.tf"]},
		map[string]string{"README.md": "docs/README.md", "main.tf": "shared/main.tf", "same": "shared"})
	result := j.importIt(e, &provisionerpb.TemplateImport{})
	if result.GetError() != "" || result.GetTemplateImport().GetReadme() != "# Mine" {
		t.Errorf("error %q, readme %q", result.GetError(), result.GetTemplateImport().GetReadme())
	}
}

// TestDeepTemplates uses templates that would end the process if a parser saw them.
func TestDeepTemplates(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	deep := func(text string) map[string]string { return files("locals {\n  a = " + text + "\n}\n") }
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"brackets":    {deep(strings.Repeat("(", 300_000)), "main.tf:7: expressions are nested more than 500 levels deep"},
		"conditions":  {deep(strings.Repeat("a?b:", 200_000) + "c"), "main.tf:7: expressions are nested more than 500 levels deep"},
		"sum":         {deep("1" + strings.Repeat("+1", 300_000)), "main.tf:7: expressions are nested more than 500 levels deep"},
		"blocks":      {files(strings.Repeat("a {\n", 100_000)), "expressions are nested more than 500 levels deep"},
		"json":        {map[string]string{"main.tf.json": "{\"locals\": {\"a\":\n" + strings.Repeat("[", 300_000) + "}}"}, "main.tf.json:2: expressions are nested more than 500 levels deep"},
		"large":       {deep(`"` + strings.Repeat("x", 1<<20) + `"`), "main.tf is larger than 1024 KiB"},
		"long readme": {map[string]string{"main.tf": files("")["main.tf"], "README.md": strings.Repeat("x", 1<<20+1)}, "README.md is larger than 1024 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			result := newTrial(t, c.files).importIt(e, &provisionerpb.TemplateImport{})
			if !strings.Contains(result.GetError(), c.want) {
				t.Errorf("got %.200q, want %q", result.GetError(), c.want)
			}
		})
	}
	t.Run("variable", func(t *testing.T) {
		j := newTrial(t, files("variable \"v\" {\n  type = any\n}\n"))
		result := j.importIt(e, &provisionerpb.TemplateImport{Variables: []*provisionerpb.VariableValue{{Name: "v", Value: strings.Repeat("[", 300_000)}}})
		if result.GetError() != "" && !strings.Contains(result.GetError(), "main.tf") {
			t.Errorf("got %.200q", result.GetError())
		}
	})
}
