package templates_test

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
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

// TestReadmeMetadata imports READMEs with front matter: a version has what a template can have of it, and a new template
// has only what its request says.
func TestReadmeMetadata(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	w.Daemon()
	tom := w.As("tom")
	imported := func(readme string) sdk.TemplateVersion {
		t.Helper()
		v, err := tom.CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{FileID: w.File("tom")})
		if err != nil {
			t.Fatal(err)
		}
		w.Daemon().Next().Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{
			TemplateImport: &provisionerpb.ImportResult{Readme: readme},
		}})
		if v, err = tom.TemplateVersion(t.Context(), v.ID); err != nil || v.Job.Status != sdk.JobSucceeded {
			t.Fatalf("import: %+v, %v", v.Job, err)
		}
		return v
	}
	front := func(name, description, icon string) string {
		return "---\ndisplay_name: " + name + "\ndescription: " + description + "\nicon: " + icon + "\n---\n\n# Text\n"
	}
	for what, test := range map[string]struct {
		readme string
		want   sdk.ReadmeMetadata
	}{
		"valid": {
			front("Go", "For Go", "/icon/go.svg"),
			sdk.ReadmeMetadata{DisplayName: "Go", Description: "For Go", Icon: "/icon/go.svg"},
		},
		"an emoji":                {front("Go", "", "/emojis/1f439.png"), sdk.ReadmeMetadata{DisplayName: "Go", Icon: "/emojis/1f439.png"}},
		"an icon of another host": {front("", "", "https://evil.example/x.svg"), sdk.ReadmeMetadata{}},
		"an icon that is a host":  {front("", "", "//evil.example/x.svg"), sdk.ReadmeMetadata{}},
		"an icon beside it":       {front("", "", "../../.icons/go.svg"), sdk.ReadmeMetadata{}},
		"a name that is too long": {front(strings.Repeat("x", 65), "For Go", ""), sdk.ReadmeMetadata{Description: "For Go"}},
		"hidden characters":       {front(`"a\u202eb"`, `"a\u202eb"`, ""), sdk.ReadmeMetadata{}},
		"none":                    {"# Text\n", sdk.ReadmeMetadata{}},
	} {
		v := imported(test.readme)
		if diff := cmp.Diff(test.want, v.ReadmeMetadata); diff != "" || v.Readme != test.readme {
			t.Errorf("%s: README %q, metadata (-want +got):\n%s", what, v.Readme, diff)
		}
	}
	made, err := tom.CreateTemplate(t.Context(), "default", sdk.CreateTemplateRequest{
		Name: "plain", VersionID: imported(front("Go", "For Go", "/icon/go.svg")).ID,
	})
	if err != nil || made.DisplayName+made.Description+made.Icon != "" {
		t.Errorf("a template that was created without texts: %+v, %v", made, err)
	}
}
