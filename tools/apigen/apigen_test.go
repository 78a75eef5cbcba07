package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestDescription looks at two operations of the description. `make verify` compares the whole of it with the source.
func TestDescription(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../coderd/reference/api.gen.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	create := doc.Operations["POST /api/v2/organizations/{organization}/templates"]
	if create == nil || !strings.HasSuffix(create.Request["$ref"].(string), "CreateTemplateRequest") || create.Responses["201"] == nil {
		t.Errorf("creating a template: %+v", create)
	}
	if list := doc.Operations["GET /api/v2/workspaces"]; list == nil || strings.Join(list.Query, " ") != "limit offset q sort" {
		t.Errorf("listing workspaces: %+v", list)
	}
}

// TestDescribed: what apigen finds on the way from a route to what its handler reads and answers.
func TestDescribed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../coderd/reference/api.gen.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	const settings = "/api/v2/organizations/{organization}/settings/idpsync/"
	for _, row := range []struct{ way, pattern, has string }{
		{"a function registers the route", "GET " + settings + "groups", `"200":{"$ref":"#/components/schemas/GroupSyncSettings"}`},
		{"a generic function answers", "PATCH " + settings + "roles", `"200":{"$ref":"#/components/schemas/RoleSyncSettings"}`},
		{"a generic function reads", "PATCH " + settings + "roles/config", `"request":{"$ref":"#/components/schemas/PatchRoleSync`},
		{"a function reads into what it gets", "PATCH /api/v2/workspaces/{workspace}/acl", `UpdateWorkspaceACLRequest`},
		{"another package answers", "GET /api/v2/workspacebuilds/{workspacebuild}/logs", `"$ref":"#/components/schemas/JobLog"`},
		{"another package reads the query", "GET /api/v2/templateversions/{templateversion}/logs", `"query":["after","follow"]`},
		{"a variable holds the query", "GET /api/v2/insights/user-activity", `"query":["end_time","start_time","template_ids"]`},
		{"the body is not JSON", "POST /api/v2/files", `"request":{"format":"binary","type":"string"}`},
	} {
		got, err := json.Marshal(doc.Operations[row.pattern])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(got), row.has) {
			t.Errorf("%s: %s is described as %s, without %s", row.way, row.pattern, got, row.has)
		}
	}
	if health := doc.Operations["GET /api/v2/debug/health"]; health == nil || health.Request != nil {
		t.Errorf("what a handler reads from another server counts as its request: %+v", health)
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"createVersion": "Create version", "list": "List", "getACL": "Get ACL", "": ""} {
		if got := sentence(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
