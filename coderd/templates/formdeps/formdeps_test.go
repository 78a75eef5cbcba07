package formdeps_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/templates/formdeps"
)

func archive(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestParse(t *testing.T) {
	t.Parallel()
	parameter := func(label, rest string) string {
		return "data \"coder_parameter\" \"" + label + "\" {\n  name = \"" + label + "\"\n" + rest + "\n}\n"
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		open  bool
	}{
		"nothing":           {map[string]string{}, nil, false},
		"fixed":             {map[string]string{"main.tf": "variable \"v\" {}\nlocals {\n  a = var.v\n}\n" + parameter("p", "default = local.a\n")}, nil, false},
		"fixed repetition":  {map[string]string{"main.tf": parameter("p", "for_each = toset([\"a\"])\ndefault = each.key\n")}, nil, false},
		"another's value":   {map[string]string{"main.tf": parameter("p", "default = data.coder_parameter.q.value")}, []string{"p"}, false},
		"an option's":       {map[string]string{"main.tf": parameter("p", "option {\n  name = \"x\"\n  value = data.coder_parameter.q.value\n}\n")}, []string{"p"}, false},
		"repeated options":  {map[string]string{"main.tf": parameter("p", "dynamic \"option\" {\n  for_each = local.a\n  content {\n    name = option.value\n    value = option.value\n  }\n}\n"), "./locals.tf": "locals {\n  a = local.b\n  b = [data.coder_workspace_owner.me.name]\n}\n"}, []string{"p"}, false},
		"a condition":       {map[string]string{"main.tf": parameter("p", "count = data.coder_parameter.q.value == \"x\" ? 1 : 0")}, []string{"p"}, false},
		"a cycle":           {map[string]string{"main.tf": "locals {\n  a = local.b\n  b = local.a\n}\n" + parameter("p", "default = local.a")}, nil, false},
		"a computed name":   {map[string]string{"main.tf": "data \"coder_parameter\" \"p\" {\n  name = \"p-${data.coder_parameter.q.value}\"\n}\n"}, nil, true},
		"in a module":       {map[string]string{"m/main.tf": parameter("p", "default = data.coder_parameter.q.value")}, nil, false},
		"another's content": {map[string]string{"notes.txt": parameter("p", "default = data.coder_parameter.q.value")}, nil, false},
	} {
		got, err := formdeps.Parse(archive(t, c.files))
		if err != nil || !slices.Equal(got.Dynamic, c.want) || got.Open != c.open || got.Fixed() != (len(c.want) == 0 && !c.open) {
			t.Errorf("%s: %+v, %v; want %v, open %t", name, got, err, c.want, c.open)
		}
	}
	for name, data := range map[string][]byte{"no tar": []byte("PK"), "no Terraform": archive(t, map[string]string{"main.tf": "data {"})} {
		if _, err := formdeps.Parse(data); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestParseFlags(t *testing.T) {
	t.Parallel()
	text := ""
	for name, flags := range map[string]string{
		"plain": "", "kept": "mutable = false", "changed": "mutable = true", "computed": "mutable = data.coder_parameter.q.value == \"x\"",
		"once": "mutable = true\nephemeral = true", "perhaps": "mutable = true\nephemeral = data.coder_parameter.q.value == \"x\"",
	} {
		text += "data \"coder_parameter\" \"" + name + "\" {\n  name = \"" + name + "\"\n  default = data.coder_parameter.q.value\n" + flags + "\n}\n"
	}
	got, err := formdeps.Parse(archive(t, map[string]string{"main.tf": text}))
	slices.Sort(got.Lasting)
	if err != nil || !slices.Equal(got.Lasting, []string{"kept", "plain"}) || !slices.Equal(got.Ephemeral, []string{"once"}) {
		t.Errorf("lasting %q, ephemeral %q, %v", got.Lasting, got.Ephemeral, err)
	}
}

// TestParseDeep parses templates that must not reach the parser, and a long chain of locals, each of which reads the next.
func TestParseDeep(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"brackets":   "locals {\n  a = " + strings.Repeat("[", 100_000) + "\n}\n",
		"conditions": "locals {\n  a = " + strings.Repeat("b?c:", 50_000) + "d\n}\n",
	} {
		if _, err := formdeps.Parse(archive(t, map[string]string{"main.tf": text})); err == nil || !strings.Contains(err.Error(), "main.tf:2") || !strings.Contains(err.Error(), "levels deep") {
			t.Errorf("%s: got %.200v", name, err)
		}
	}
	var chain strings.Builder
	chain.WriteString("data \"coder_parameter\" \"p\" {\n  name = \"p\"\n  default = local.l0\n}\nlocals {\n")
	for n := range 20_000 {
		fmt.Fprintf(&chain, "  l%d = local.l%d\n", n, n+1)
	}
	chain.WriteString("  l20000 = data.coder_parameter.q.value\n}\n")
	if got, err := formdeps.Parse(archive(t, map[string]string{"main.tf": chain.String()})); err != nil || !slices.Equal(got.Dynamic, []string{"p"}) {
		t.Errorf("a chain of locals: got %v, %v", got, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(archive(f, map[string]string{"main.tf": "data \"coder_parameter\" \"p\" {\n  name = \"p\"\n  default = local.a\n}\nlocals {\n  a = data.x.y.z\n}\n"}))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		form, err := formdeps.Parse(data)
		if err != nil && !form.Fixed() {
			t.Errorf("%v with an error", form)
		}
	})
}
