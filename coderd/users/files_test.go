package users_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// entry is a file in an archive.
type entry struct {
	name, text, link string
	kind             byte
}

func tarOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if err := w.WriteHeader(&tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: 0o644, Size: int64(len(e.text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range entries {
		f, err := w.Create(e.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestFiles(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	admin, member := owner.add("tad", "template-admin"), owner.add("alice")
	archive := tarOf(t, entry{name: "./", kind: tar.TypeDir}, entry{name: "./main.tf", text: "resource {}"}, entry{name: "link", kind: tar.TypeSymlink, link: "main.tf"})

	first := call[sdk.UploadResponse](admin, 201, "POST", "files", raw{sdk.ContentTypeTar, archive})
	if again := call[sdk.UploadResponse](admin, 200, "POST", "files", raw{sdk.ContentTypeTar, archive}); again.ID != first.ID {
		t.Errorf("the same bytes: got %s, then %s", first.ID, again.ID)
	}
	if got := admin.want(200, "GET", "files/"+first.ID.String(), nil); !bytes.Equal(got, archive) {
		t.Error("the file came back different")
	}
	zipped := owner.want(200, "GET", "files/"+first.ID.String()+"?format=zip", nil)
	z, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
	if err != nil || len(z.File) == 0 {
		t.Fatalf("as zip: %v", err)
	}
	// A zip comes back as the tar that it was converted to.
	up := call[sdk.UploadResponse](admin, 201, "POST", "files", raw{sdk.ContentTypeZip, zipOf(t, entry{name: "dir/main.tf", text: "hello"})})
	r := tar.NewReader(bytes.NewReader(admin.want(200, "GET", "files/"+up.ID.String(), nil)))
	h, err := r.Next()
	if err != nil || h.Name != "dir/main.tf" {
		t.Fatalf("zip as tar: %+v, %v", h, err)
	}
	if text, err := io.ReadAll(r); err != nil || string(text) != "hello" {
		t.Errorf("zip as tar: %q, %v", text, err)
	}

	member.want(403, "POST", "files", raw{sdk.ContentTypeTar, archive})
	member.want(404, "GET", "files/"+first.ID.String(), nil)
	admin.want(404, "GET", "files/"+uuid.NewString(), nil)
	admin.want(400, "GET", "files/nonsense", nil)
	admin.want(400, "GET", "files/"+first.ID.String()+"?format=rar", nil)

	huge := strings.Repeat("x", 11<<20)
	for name, row := range map[string]struct {
		body raw
		want int
	}{
		"no type":              {raw{"", archive}, 400},
		"another type":         {raw{"text/html", archive}, 400},
		"not a tar":            {raw{sdk.ContentTypeTar, []byte(strings.Repeat("x", 2000))}, 400},
		"nothing":              {raw{sdk.ContentTypeTar, nil}, 400},
		"no file in it":        {raw{sdk.ContentTypeTar, tarOf(t)}, 400},
		"cut off":              {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "a", text: huge[:1<<20]})[:2000]}, 400},
		"not a zip":            {raw{sdk.ContentTypeZip, archive}, 400},
		"too large":            {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "a", text: huge})}, 413},
		"zip bomb":             {raw{sdk.ContentTypeZip, zipOf(t, entry{name: "a", text: huge})}, 413},
		"climbs out":           {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "../a", text: "x"})}, 400},
		"absolute":             {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "/etc/passwd", text: "x"})}, 400},
		"zip climbs out":       {raw{sdk.ContentTypeZip, zipOf(t, entry{name: "a/../../b", text: "x"})}, 400},
		"link leads out":       {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "d/l", kind: tar.TypeSymlink, link: "../../x"}, entry{name: "a", text: "x"})}, 400},
		"link is absolute":     {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "l", kind: tar.TypeSymlink, link: "/etc/passwd"}, entry{name: "a", text: "x"})}, 400},
		"hard link":            {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "l", kind: tar.TypeLink, link: "/etc/shadow"}, entry{name: "a", text: "x"})}, 400},
		"device":               {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "null", kind: tar.TypeChar}, entry{name: "a", text: "x"})}, 400},
		"back-slashes are not": {raw{sdk.ContentTypeTar, tarOf(t, entry{name: `..\a`, text: "x"})}, 400},
	} {
		if got, text := admin.send("POST", "files", row.body); got != row.want {
			t.Errorf("%s: got %d %s, want %d", name, got, text, row.want)
		}
	}
}
