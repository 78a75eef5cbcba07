package audit

import (
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	for want, row := range map[string]dbsqlc.AuditLog{
		"ann created token ci":                                {Action: "create", ResourceType: string(APIKey), ResourceTarget: "ci", StatusCode: 201},
		"ann was not allowed to create a token":               {Action: "create", ResourceType: string(APIKey), ResourceTarget: "me", StatusCode: 403},
		"ann was not allowed to create an organization":       {Action: "create", ResourceType: string(Organization), StatusCode: 403},
		"ann was not allowed to create a user secret":         {Action: "create", ResourceType: string(UserSecret), StatusCode: 403},
		"ann created public SSH key laptop":                   {Action: "create", ResourceType: string(UserSSHKey), ResourceTarget: "laptop", StatusCode: 201},
		"ann created device phone":                            {Action: "create", ResourceType: string(UserDevice), ResourceTarget: "phone", StatusCode: 201},
		"ann was not allowed to create a public SSH key":      {Action: "create", ResourceType: string(UserSSHKey), ResourceTarget: "bob", StatusCode: 403},
		"ann was not allowed to change workspace bob/dev":     {Action: "write", ResourceType: string(Workspace), ResourceTarget: "bob/dev", StatusCode: 403},
		"ann was not allowed to delete template process":      {Action: "delete", ResourceType: string(Template), ResourceTarget: "process", StatusCode: 403},
		"ann could not sign in":                               {Action: "login", ResourceType: string(APIKey), StatusCode: 401},
		"ann suspended user bob":                              {Action: "write", ResourceType: string(User), ResourceTarget: "bob", Diff: []byte(`{"status":{"old":"active","new":"suspended"}}`)},
		"ann changed roles of user bob":                       {Action: "write", ResourceType: string(User), ResourceTarget: "bob", Diff: []byte(`{"roles":{"old":[],"new":["auditor"]}}`)},
		"ann changed members of group ops":                    {Action: "write", ResourceType: string(Group), ResourceTarget: "ops", Diff: []byte(`{"members_add":{"old":"","new":"x"},"members_remove":{}}`)},
		"ann changed a, b, c and 1 more of template t":        {Action: "write", ResourceType: string(Template), ResourceTarget: "t", Diff: []byte(`{"d":{},"c_id":{},"b":{},"a":{}}`)},
		"ann changed template t":                              {Action: "write", ResourceType: string(Template), ResourceTarget: "t", Diff: []byte(`{}`)},
		"ann woke workspace dev":                              {Action: "write", ResourceType: string(Workspace), ResourceTarget: "dev", Diff: []byte(`{"dormant_at":{"old":"2030-01-01T00:00:00Z","new":null}}`)},
		"ann uploaded a template's files":                     {Action: "create", ResourceType: string(File), ResourceTarget: "b65e4877"},
		"ann gave template docker consent to use credentials": {Action: "create", ResourceType: string(TemplateConsent), ResourceTarget: "docker"},
		"ann removed member bob":                              {Action: "delete", ResourceType: string(OrganizationMember), ResourceTarget: "bob"},
		"ann stopped workspace bob/dev":                       {Action: "stop", ResourceType: string(Workspace), ResourceTarget: "dev", AdditionalFields: []byte(`{"workspace_owner":"bob"}`)},
		"ann stopped workspace dev":                           {Action: "stop", ResourceType: string(Workspace), ResourceTarget: "dev", AdditionalFields: []byte(`{"workspace_owner":"ann"}`)},
		"System stopped workspace bob/dev because it slept":   {Action: "stop", ResourceType: string(Workspace), ResourceTarget: "dev", Actor: ByServer, AdditionalFields: []byte(`{"workspace_owner":"bob","because":"it slept"}`)},
		"Workspace bob/dev stopped":                           {Action: "stop", ResourceType: string(WorkspaceBuild), ResourceTarget: "dev", Actor: ByServer, AdditionalFields: []byte(`{"workspace_owner":"bob"}`)},
		"The stop of workspace bob/dev failed":                {Action: "stop", ResourceType: string(WorkspaceBuild), ResourceTarget: "dev", StatusCode: 500, Actor: ByServer, AdditionalFields: []byte(`{"workspace_owner":"bob"}`)},
	} {
		if row.Actor == "" {
			row.Actor = "ann"
		}
		if got := describe(row); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
