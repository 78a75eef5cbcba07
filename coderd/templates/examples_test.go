package templates_test

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestStarters(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	tom := w.As("tom") // a template admin
	list, err := w.As("ann").TemplateExamples(t.Context())
	if err != nil || len(list) == 0 {
		t.Fatalf("examples: %v, %v", list, err)
	}
	for _, example := range list {
		if example.Name == "" || example.Markdown == "" || !strings.HasPrefix(example.Icon, "/icon/") {
			t.Errorf("example %s is not described: %+v", example.ID, example)
		}
		version, err := tom.CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{ExampleID: example.ID})
		if err != nil {
			t.Fatalf("version from starter %s: %v", example.ID, err)
		}
		file, err := w.DB.GetFile(t.Context(), version.Job.FileID)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for entries := tar.NewReader(bytes.NewReader(file.Data)); ; {
			entry, err := entries.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("the archive of starter %s: %v", example.ID, err)
			}
			names = append(names, entry.Name)
		}
		if got := strings.Join(names, " "); !strings.Contains(got, "main.tf") || !strings.Contains(got, "README.md") {
			t.Errorf("starter %s holds %s", example.ID, got)
		}
		again, err := tom.CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{ExampleID: example.ID})
		if err != nil || again.Job.FileID != version.Job.FileID {
			t.Errorf("the same starter is stored as %s and %s (%v)", version.Job.FileID, again.Job.FileID, err)
		}
	}
	for name, req := range map[string]sdk.CreateTemplateVersionRequest{
		"unknown":           {ExampleID: "../process"},
		"file and starter":  {ExampleID: list[0].ID, FileID: uuid.New()},
		"neither of either": {},
	} {
		if _, err := tom.CreateTemplateVersion(t.Context(), "default", req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if _, err := w.As("ann").CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{ExampleID: list[0].ID}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a member imports a starter: %v, want forbidden", err)
	}
}
