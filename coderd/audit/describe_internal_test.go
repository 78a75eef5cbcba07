package audit

import (
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	for want, row := range map[string]dbsqlc.AuditLog{
		"ann created token ci":                            {Action: "create", ResourceType: string(APIKey), ResourceTarget: "ci", StatusCode: 201},
		"ann was not allowed to create a token":           {Action: "create", ResourceType: string(APIKey), ResourceTarget: "me", StatusCode: 403},
		"ann was not allowed to create an organization":   {Action: "create", ResourceType: string(Organization), StatusCode: 403},
		"ann was not allowed to create a user secret":     {Action: "create", ResourceType: string(UserSecret), StatusCode: 403},
		"ann created public SSH key laptop":               {Action: "create", ResourceType: string(UserSSHKey), ResourceTarget: "laptop", StatusCode: 201},
		"ann created device phone":                        {Action: "create", ResourceType: string(UserDevice), ResourceTarget: "phone", StatusCode: 201},
		"ann was not allowed to create a public SSH key":  {Action: "create", ResourceType: string(UserSSHKey), ResourceTarget: "bob", StatusCode: 403},
		"ann was not allowed to change workspace bob/dev": {Action: "write", ResourceType: string(Workspace), ResourceTarget: "bob/dev", StatusCode: 403},
		"ann was not allowed to delete template process":  {Action: "delete", ResourceType: string(Template), ResourceTarget: "process", StatusCode: 403},
		"ann could not sign in":                           {Action: "login", ResourceType: string(APIKey), StatusCode: 401},
	} {
		row.Actor = "ann"
		if got := describe(row); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
