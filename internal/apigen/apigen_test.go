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

func TestSentence(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"createVersion": "Create version", "list": "List", "getACL": "Get ACL", "": ""} {
		if got := sentence(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
