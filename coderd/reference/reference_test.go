package reference_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/reference"
)

// other are routes whose answers are not JSON or are empty; and what other servers have and this one always refuses.
var other = regexp.MustCompile(`^GET /api/v2/(openapi.json|derp-map|tailnet|workspaceagents/connection|tasks/\{user\}/\{task\})$|/(pty|watch|watch-ws|watch-metadata|watch-metadata-ws|coordinate|state|events|lifecycle|export|callback|serve|rpc|link)$|^GET /api/v2/(debug/(coordinator|tailnet)|oauth2-provider/apps|aibridge/interceptions|provisionerkeys/\{key\}|csp/reports)$` +
	`|^GET /api/v2/(external-auth/\{externalauth\}/device|insights/user-(latency|status-counts)|templateversions/\{templateversion\}/(schema|dynamic-parameters))$` +
	`|^GET /api/v2/(workspace-quota/\{user\}|workspaceagents/\{workspaceagent\}/startup-logs|debug/derp/traffic)$` +
	`|^GET /api/v2/(files/|debug/(ws|server)|applications/auth-redirect)`)

// TestEveryRouteIsDescribed: the document has every route of the API, with its permission and what it answers, and refers to nothing that it
// lacks.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	read := func(path string) string {
		t.Helper()
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	text := read("/api/v2/openapi.json")
	if read("/swagger/doc.json") != text {
		t.Error("/swagger/doc.json differs")
	}
	var doc reference.Document
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	page := read("/swagger")
	n := 0
	ids := map[string]string{}
	for _, route := range s.Mux.Routes() {
		method, path, _ := strings.Cut(route.Pattern, " ")
		if !strings.HasPrefix(path, "/api/v2") {
			continue
		}
		n++
		op, ok := doc.Paths[strings.TrimSuffix(path, "{$}")][strings.ToLower(method)]
		if !ok {
			t.Errorf("%s is not described", route.Pattern)
			continue
		}
		if op.Permission != route.Permission.String() || (len(op.Security) == 0) != route.Permission.IsPublic() {
			t.Errorf("%s: permission %q, security %v, want %s", route.Pattern, op.Permission, op.Security, route.Permission)
		}
		if twin := ids[op.OperationID]; twin != "" {
			t.Errorf("%s and %s have the same operationId %s", route.Pattern, twin, op.OperationID)
		}
		ids[op.OperationID] = route.Pattern
		answers := slices.ContainsFunc(slices.Collect(keys(op.Responses)), func(status string) bool { return status[0] == '2' || status[0] == '3' })
		if !answers && !other.MatchString(route.Pattern) && !refused(s, route.Pattern) {
			t.Errorf("%s: the source says nothing of what it answers", route.Pattern)
		}
		if !strings.Contains(page, "<code>"+path+"</code>") && path != "/api/v2/{$}" {
			t.Errorf("the page lacks %s", path)
		}
	}
	if n < 200 {
		t.Errorf("only %d routes", n)
	}
	for _, m := range regexp.MustCompile(`"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if schema := doc.Components.Schemas[m[1]]; len(schema) == 0 || string(schema) == "null" {
			t.Errorf("the document refers to %s and lacks it", m[1])
		}
	}
	workspace := string(doc.Components.Schemas["Workspace"])
	for _, field := range []string{`"latest_build":{"$ref":"#/components/schemas/WorkspaceBuild"}`, `"format":"date-time"`, `"ttl_ms"`} {
		if !strings.Contains(workspace, field) {
			t.Errorf("the schema of a workspace lacks %s: %s", field, workspace)
		}
	}
	if upload := doc.Paths["/api/v2/files"]["post"]; upload.RequestBody == nil || len(upload.RequestBody.Content["*/*"].Schema) == 0 {
		t.Errorf("the upload of a file, which is not JSON, is described as %+v", upload.RequestBody)
	}
	if create := doc.Paths["/api/v2/users/{user}/workspaces"]["post"]; create.RequestBody == nil || !strings.Contains(string(create.Responses["201"].Content["application/json"].Schema), "Workspace") {
		t.Errorf("creating a workspace is described as %+v", create)
	}
}

// refused reports whether a route always refuses: its group has nothing else to answer.
func refused(s *coderdtest.Server, pattern string) bool {
	for _, route := range s.Mux.Routes() {
		if route.Pattern == pattern {
			return strings.Contains(route.Audit.Exempt, "always refused")
		}
	}
	return false
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
