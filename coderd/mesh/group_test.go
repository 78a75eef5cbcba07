package mesh_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestAgentsOfUser: at the server's node, the agents of a user share a bound of memory. Those of prebuilt workspaces do not.
func TestAgentsOfUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	groups := map[string]uuid.UUID{}
	join := func(name, owner string, prebuilt bool) {
		t.Helper()
		_, id := w.RunningRow(owner, name)
		if prebuilt {
			w.Exec(`UPDATE workspaces SET owner_id = $1 WHERE name = $2`, sdk.PrebuildsOwnerID, name)
		}
		agent := w.Join(coderdtest.AsAgent(coderdtest.Token(id).Reveal()))
		agent.Serve(8080, capitals)
		converse(t, w.dial(t, id))
		group, known := w.Group(id)
		if !known {
			t.Fatalf("the server's node does not know the agent of %s", name)
		}
		groups[name] = group
	}
	join("one", "ann", false)
	join("two", "ann", false)
	join("other", "bob", false)
	join("pool", "ann", true)
	if groups["one"] == uuid.Nil || groups["one"] != groups["two"] || groups["other"] == uuid.Nil || groups["other"] == groups["one"] || groups["pool"] != uuid.Nil {
		t.Errorf("groups: %v", groups)
	}
}
