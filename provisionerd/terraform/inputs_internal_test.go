package terraform

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

func TestPolicyFile(t *testing.T) {
	t.Parallel()
	for _, self := range []string{"/usr/bin/coder", "/with blank/it's here/coder", "/" + strings.Repeat("x", 300)} {
		name := filepath.Join(t.TempDir(), "x")
		want := sandbox.Policy{Exec: "/bin/terraform", PidFile: "/p", Write: []string{"/a"}, UID: 7}
		if err := want.Store(name, self); err != nil {
			t.Fatal(err)
		}
		if to, err := os.Readlink(sandbox.Command(name)); err != nil || to != self {
			t.Errorf("the command for %s: %s, %v", self, to, err)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := sandbox.DecodePolicy(text)
		if err != nil || got.Exec != want.Exec || got.UID != 7 || len(got.Write) != 1 {
			t.Errorf("%s: %+v, %v", self, got, err)
		}
	}
}

func FuzzExtract(f *testing.F) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []tar.Header{
		{Name: "a/main.tf", Typeflag: tar.TypeReg, Size: 1, Mode: 0o644}, {Name: "../x", Typeflag: tar.TypeReg}, {Name: "l", Typeflag: tar.TypeSymlink, Linkname: "a"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(out.Bytes())
	f.Fuzz(func(t *testing.T, archive []byte) {
		outer := t.TempDir()
		inner := filepath.Join(outer, "in")
		if err := os.Mkdir(inner, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(inner)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		err = extract(root, bytes.NewReader(archive))
		entries, rerr := os.ReadDir(outer)
		if rerr != nil || len(entries) != 1 {
			t.Errorf("extract (%v) left %v outside, %v", err, entries, rerr)
		}
	})
}

func FuzzSource(f *testing.F) {
	f.Add("variable \"a\" {}\ndata \"coder_parameter\" \"p\" {\n  name = local.x\n  validation {\n    min = 1\n  }\n}\nlocals {\n  x = \"${local.y}\"\n  y = each.key\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		source, err := template.Read(dir)
		if err != nil {
			return
		}
		files, err := source.Files()
		if err != nil {
			return
		}
		content, _ := template.Project(files)
		if got := content["main.tf"]; bytes.Count(got, []byte("\n")) != strings.Count(text, "\n") {
			t.Errorf("the projection moved lines:\n%s", got)
		}
	})
}

// TestLoopsInDefaults tries loops that would exhaust the daemon's memory if it evaluated them.
func TestLoopsInDefaults(t *testing.T) {
	t.Parallel()
	list := "[" + strings.Repeat("1,", 2000) + "]"
	loop := strings.ReplaceAll("[for a in X : [for b in X : [for c in X : [for d in X : d]]]]", "X", list)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte("variable \"v\" {\n  default = "+loop+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := template.Read(dir)
	if err != nil || len(source.Variables) != 1 || source.Variables[0].Required || source.Variables[0].DefaultValue != "" {
		t.Errorf("got %v, %v", source, err)
	}
	values, err := source.VariablesFile([]*provisionerpb.VariableValue{{Name: "v", Value: loop}})
	if err != nil || !bytes.Contains(values, []byte("for a in")) {
		t.Errorf("got %.100s, %v", values, err)
	}
}
