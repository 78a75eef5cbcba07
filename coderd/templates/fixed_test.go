package templates_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// raw sends JSON as a third-party client would, and returns the status and the refused fields.
func raw(t *testing.T, w *coderdtest.Server, as, method, path string, body any) (int, map[string]string) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, w.URL.JoinPath(path).String(), bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(sdk.SessionHeader, w.Token(as))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer sdk.Response
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for _, v := range answer.Validations {
		fields[v.Field] = v.Detail
	}
	return res.StatusCode, fields
}

// TestFixedSettings checks that the server refuses a setting that it does not keep and names it: it never answers 200 and
// drops the setting.
func TestFixedSettings(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", found())
	path := "/api/v2/templates/" + template.ID.String()
	for field, value := range map[string]any{
		"max_port_share_level": "everybody", "cors_behavior": "passthru",
		"use_classic_parameter_flow": false, "template_use_classic_parameter_flow": false,
		"disable_module_cache": true,
	} {
		if status, fields := raw(t, w, "tom", "PATCH", path, map[string]any{field: value, "description": "changed"}); status != 400 || len(fields) != 1 || fields[field] == "" {
			t.Errorf("PATCH %s=%v: %d %v", field, value, status, fields)
		}
		body := map[string]any{field: value, "name": "other", "template_version_id": uuid.New()}
		if status, fields := raw(t, w, "tom", "POST", "/api/v2/organizations/default/templates", body); status != 400 || len(fields) != 1 || fields[field] == "" {
			t.Errorf("POST %s=%v: %d %v", field, value, status, fields)
		}
	}

	// Clients that manage templates may send back the template's own values, in any order and with nulls.
	defaults := map[string]any{
		"description":          "kept",
		"max_port_share_level": "owner", "cors_behavior": nil, "use_classic_parameter_flow": nil,
	}
	if status, fields := raw(t, w, "tom", "PATCH", path, defaults); status != 200 {
		t.Errorf("defaults: %d %v", status, fields)
	}
	if status, fields := raw(t, w, "tom", "PATCH", path, map[string]any{"autostart_requirement": map[string]any{"days_of_week": nil}, "max_port_share_level": ""}); status != 200 {
		t.Errorf("nothing named: %d %v", status, fields)
	}
	got, err := w.As("tom").Template(t.Context(), template.ID)
	if err != nil || got.Description != "kept" || got.CORSBehavior != "simple" || len(got.AutostartRequirement.DaysOfWeek) != 7 {
		t.Errorf("template: %+v, %v", got, err)
	}
	if list, err := w.As("tom").Templates(t.Context(), "", ""); err != nil || len(list) != 1 {
		t.Errorf("templates: %d, %v", len(list), err)
	}
}

// TestZeroTemplate checks that zeros count as a missing id, because clients written in Go send them.
func TestZeroTemplate(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	body := map[string]any{"template_id": uuid.Nil, "file_id": w.File("tom"), "storage_method": "file", "provisioner": "terraform"}
	if status, fields := raw(t, w, "tom", "POST", "/api/v2/organizations/default/templateversions", body); status != 201 {
		t.Errorf("a version of no template: %d %v", status, fields)
	}
	body["template_id"] = uuid.New()
	if status, fields := raw(t, w, "tom", "POST", "/api/v2/organizations/default/templateversions", body); status != 400 || fields["template_id"] == "" {
		t.Errorf("a version of a template that does not exist: %d %v", status, fields)
	}
}

// TestUnsafeApp checks that an app that would run a script in the dashboard fails its template's import, with the reason.
func TestUnsafeApp(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	tom := w.As("tom")
	for address, want := range map[string]sdk.JobStatus{"java\tscript:alert(1)": sdk.JobFailed, "https://example.com": sdk.JobSucceeded} {
		made, err := tom.CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{StorageMethod: "file", FileID: w.File("tom"), Provisioner: "terraform"})
		if err != nil {
			t.Fatal(err)
		}
		resource := coderdtest.Resource(uuid.Nil)
		resource.Agents[0].Apps = []*provisionerpb.App{{Slug: "trap", External: true, Url: address}}
		job := w.Daemon().Next()
		job.Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: &provisionerpb.ImportResult{StartResources: []*provisionerpb.Resource{resource}}}})
		v, err := tom.TemplateVersion(t.Context(), made.ID)
		if err != nil || v.Job.Status != want || want == sdk.JobFailed && !strings.Contains(v.Job.Error, `"trap"`) {
			t.Errorf("%q: %s %q, %v", address, v.Job.Status, v.Job.Error, err)
		}
	}
}

// TestSharingOfNewTemplates checks that workspaces of a new template share nothing that its author did not open: by a setting, or by the
// declaration of an app. Later changes leave the limit alone.
func TestSharingOfNewTemplates(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	for name, test := range map[string]struct {
		declared []string // by apps
		asked    any
		want     sdk.AppShare
	}{
		"nothing":  {nil, nil, sdk.ShareOwner},
		"empty":    {nil, "", sdk.ShareOwner},
		"asked":    {nil, "authenticated", sdk.ShareAuthenticated},
		"private":  {[]string{"owner", ""}, nil, sdk.ShareOwner},
		"declared": {[]string{"organization", "owner", "authenticated"}, nil, sdk.ShareAuthenticated},
		"both":     {[]string{"public"}, "owner", sdk.ShareOwner},
	} {
		resource := coderdtest.Resource(uuid.Nil)
		for i, share := range test.declared {
			resource.Agents[0].Apps = append(resource.Agents[0].Apps, &provisionerpb.App{Slug: fmt.Sprint("app", i), Url: "http://127.0.0.1:80", Share: share})
		}
		v := w.Version(nil, &provisionerpb.ImportResult{StartResources: []*provisionerpb.Resource{resource}})
		body := map[string]any{"name": name, "template_version_id": v.ID, "max_port_share_level": test.asked}
		if status, fields := raw(t, w, "tom", "POST", "/api/v2/organizations/default/templates", body); status != 201 {
			t.Fatalf("%s: %d %v", name, status, fields)
		}
		got, err := w.As("tom").TemplateByName(t.Context(), sdk.DefaultOrganization, name)
		if err != nil || got.MaxPortShareLevel != test.want {
			t.Errorf("%s: %s, %v, want %s", name, got.MaxPortShareLevel, err, test.want)
		}
		text := "changed"
		if got, err = w.As("tom").UpdateTemplate(t.Context(), got.ID, sdk.UpdateTemplateRequest{Description: &text}); err != nil || got.MaxPortShareLevel != test.want {
			t.Errorf("%s after a change: %s, %v", name, got.MaxPortShareLevel, err)
		}
	}
}
