package templates_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
)

// settings returns a template's JSON as a client that manages templates reads it.
func settings(t *testing.T, w *coderdtest.Server, path string) map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL.JoinPath(path).String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Coder-Session-Token", w.Token("tom"))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got map[string]any
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestPolicySettings checks that every setting that the server accepts is in its answers afterwards, exactly as it was sent, and that the
// settings that a request does not name stay.
func TestPolicySettings(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", found())
	path := "/api/v2/templates/" + template.ID.String()
	want := settings(t, w, path)
	weekdays := []any{"monday", "tuesday", "wednesday", "thursday", "friday"}
	for _, tt := range []struct {
		field string
		value any
	}{
		{"default_ttl_ms", 28_800_000.0},
		{"max_ttl_ms", 86_400_123.0},
		{"activity_bump_ms", 1_234.0},
		{"time_til_autostop_notify_ms", 7.0},
		{"failure_ttl_ms", 3.0},
		{"time_til_dormant_ms", 86_400_000.0},
		{"time_til_dormant_autodelete_ms", 604_800_001.0},
		{"allow_user_autostart", false},
		{"allow_user_autostop", false},
		{"allow_user_cancel_workspace_jobs", false},
		{"allow_replacing_resources", true},
		{"require_active_version", true},
		{"autostart_requirement", map[string]any{"days_of_week": weekdays}},
		{"autostart_requirement", map[string]any{"days_of_week": []any{}}},
		{"autostop_requirement", map[string]any{"days_of_week": []any{"saturday", "sunday"}, "weeks": 2.0}},
		{"autostop_requirement", map[string]any{"days_of_week": []any{}, "weeks": 1.0}},
		{"max_ttl_ms", 0.0},
		{"allow_user_autostart", true},
	} {
		if status, fields := raw(t, w, "tom", "PATCH", path, map[string]any{tt.field: tt.value}); status != 200 {
			t.Fatalf("%s=%v: %d %v", tt.field, tt.value, status, fields)
		}
		want[tt.field] = tt.value
		got := settings(t, w, path)
		got["updated_at"] = want["updated_at"]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %s=%v: %s", tt.field, tt.value, diff)
		}
	}
	// Two settings have another name at creation.
	body := map[string]any{"name": "other", "template_version_id": w.Version(nil, found()).ID, "dormant_ttl_ms": 5, "delete_ttl_ms": 6, "failure_ttl_ms": 7}
	if status, fields := raw(t, w, "tom", "POST", "/api/v2/organizations/default/templates", body); status != 201 {
		t.Fatalf("create: %d %v", status, fields)
	}
	got := settings(t, w, "/api/v2/organizations/default/templates/other")
	for field, want := range map[string]float64{"time_til_dormant_ms": 5, "time_til_dormant_autodelete_ms": 6, "failure_ttl_ms": 7} {
		if got[field] != want {
			t.Errorf("%s of a new template: %v, want %v", field, got[field], want)
		}
	}
}

// TestPolicySettingsRefused checks that a wrong setting is named and changes nothing, and that members cannot set any.
func TestPolicySettingsRefused(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", found())
	path := "/api/v2/templates/" + template.ID.String()
	if status, fields := raw(t, w, "tom", "PATCH", path, map[string]any{"default_ttl_ms": 7_200_000}); status != 200 {
		t.Fatalf("%d %v", status, fields)
	}
	before := settings(t, w, path)
	for _, tt := range []struct {
		field string
		value any
	}{
		{"max_ttl_ms", -1}, {"max_ttl_ms", 59_999}, {"max_ttl_ms", 3_600_000}, {"activity_bump_ms", int64(1) << 60}, {"failure_ttl_ms", -5},
		{"time_til_dormant_ms", -1}, {"delete_ttl_ms", -1}, {"default_ttl_ms", 1_500},
		{"autostart_requirement", map[string]any{"days_of_week": []string{"someday"}}},
		{"autostop_requirement", map[string]any{"days_of_week": []string{"mon"}}},
		{"autostop_requirement", map[string]any{"days_of_week": []string{"monday"}, "weeks": 17}},
		{"autostop_requirement", map[string]any{"weeks": -1}},
	} {
		if status, fields := raw(t, w, "tom", "PATCH", path, map[string]any{tt.field: tt.value, "description": "changed"}); status != 400 || fields[tt.field] == "" {
			t.Errorf("%s=%v: %d %v", tt.field, tt.value, status, fields)
		}
	}
	if status, fields := raw(t, w, "tom", "PATCH", path, map[string]any{"time_til_dormant_ms": 1, "dormant_ttl_ms": 2}); status != 400 || fields["time_til_dormant_ms"] == "" {
		t.Errorf("two values of one setting: %d %v", status, fields)
	}
	if status, _ := raw(t, w, "ann", "PATCH", path, map[string]any{"max_ttl_ms": 0}); status != 403 {
		t.Errorf("a member changes a template: %d, want 403", status)
	}
	if diff := cmp.Diff(before, settings(t, w, path)); diff != "" {
		t.Errorf("refused settings changed the template: %s", diff)
	}
}
