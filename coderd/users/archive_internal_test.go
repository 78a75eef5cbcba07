package users

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

func tarWith(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		h.Mode, h.Size = 0o644, 0
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestChainedLinks has links that each stay inside the folder but together lead outside.
func TestChainedLinks(t *testing.T) {
	t.Parallel()
	chain := []tar.Header{
		{Name: "main.tf", Typeflag: tar.TypeReg},
		{Name: "a/up", Typeflag: tar.TypeSymlink, Linkname: ".."},
		{Name: "l0", Typeflag: tar.TypeSymlink, Linkname: "a/up/.."},
	}
	for n := range 11 {
		chain = append(chain, tar.Header{Name: fmt.Sprintf("l%d", n+1), Typeflag: tar.TypeSymlink, Linkname: fmt.Sprintf("l%d/..", n)})
	}
	chain = append(chain, tar.Header{Name: "README.md", Typeflag: tar.TypeSymlink, Linkname: "l11/etc/shadow"})
	if err := checkTar(tarWith(t, chain...)); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "passes through the link") {
		t.Errorf("got %v", err)
	}
	below := tarWith(t, tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b"}, tar.Header{Name: "a/main.tf", Typeflag: tar.TypeReg})
	if err := checkTar(below); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a file below a link: got %v", err)
	}
	owners := tarWith(t, tar.Header{Name: "./main.tf", Typeflag: tar.TypeReg}, tar.Header{Name: "docs/README.md", Typeflag: tar.TypeReg},
		tar.Header{Name: "README.md", Typeflag: tar.TypeSymlink, Linkname: "docs/README.md"}, tar.Header{Name: "docs/main.tf", Typeflag: tar.TypeSymlink, Linkname: "../main.tf"})
	if err := checkTar(owners); err != nil {
		t.Errorf("links inside are refused: %v", err)
	}
}

// FuzzArchive checks that every upload is either stored or refused, and that what is stored can be converted.
func FuzzArchive(f *testing.F) {
	var t, z bytes.Buffer
	tw, zw := tar.NewWriter(&t), zip.NewWriter(&z)
	if err := tw.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: 1}); err != nil {
		f.Fatal(err)
	}
	if _, err := tw.Write([]byte("x")); err != nil {
		f.Fatal(err)
	}
	if w, err := zw.Create("main.tf"); err != nil {
		f.Fatal(err)
	} else if _, err := w.Write([]byte("x")); err != nil {
		f.Fatal(err)
	}
	if tw.Close() != nil || zw.Close() != nil {
		f.Fatal("close")
	}
	f.Add(t.Bytes(), false)
	f.Add(z.Bytes(), true)
	f.Fuzz(func(t *testing.T, data []byte, zipped bool) {
		if zipped {
			var err error
			if data, err = tarOfZip(data); err != nil {
				if fault.As(err) == nil {
					t.Errorf("internal error: %v", err)
				}
				return
			}
		}
		if len(data) > maxFile {
			return
		}
		if err := checkTar(data); err != nil {
			if fault.As(err) == nil {
				t.Errorf("internal error: %v", err)
			}
			return
		}
		if _, err := zipOfTar(data); err != nil {
			t.Errorf("a stored archive cannot be converted: %v", err)
		}
	})
}
