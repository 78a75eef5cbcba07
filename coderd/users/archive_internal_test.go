package users

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"testing"

	"github.com/codermesh/codermesh/internal/fault"
)

// FuzzArchive: whatever is uploaded is stored or refused; what is stored can be converted.
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
