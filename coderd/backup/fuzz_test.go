package backup_test

import (
	"bytes"
	"compress/gzip"
	"log/slog"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/backup"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

var discard = slog.New(slog.DiscardHandler)

// FuzzCheck reads any contents under a right header and checksum.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"migrations":[1]}` + "\n" + `{"table":"users","columns":["id"]}` + "\n\x00\x00\x00\x02a\n\x00\x00\x00\x00" + `{"end":true}` + "\n"))
	f.Add([]byte(`{"migrations":[1]}` + "\n" + `{"table":"users"}` + "\n\xff\xff\xff\xff"))
	f.Add([]byte("{}\n{\"end\":true}\n{}"))
	f.Fuzz(func(t *testing.T, contents []byte) {
		var file bytes.Buffer
		file.WriteString("codermesh backup 1\n")
		gz := gzip.NewWriter(&file)
		if _, err := gz.Write(contents); err != nil {
			t.Fatal(err)
		}
		if err := gz.Close(); err != nil {
			t.Fatal(err)
		}
		whole := sum(file.Bytes())
		if _, err := backup.Check(bytes.NewReader(whole), int64(len(whole))); err != nil && fault.CodeOf(err) != fault.Invalid {
			t.Errorf("got %v, want a fault", err)
		}
	})
}
