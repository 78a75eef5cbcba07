package workspaces_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// stateText returns a Terraform state with resources.
func stateText(lineage string, serial, resources int) string {
	return fmt.Sprintf(`{"version": 4, "lineage": %q, "serial": %d, "resources": [{"mode": "managed", "instances": [%s]}]}`,
		lineage, serial, strings.TrimSuffix(strings.Repeat("{},", resources), ","))
}

// TestPushedState checks that a state that is none, is older, or belongs to another workspace is refused, stored and built, and that force
// admits all but the first.
func TestPushedState(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	tmpl := w.Template("plain", &provisionerpb.ImportResult{})
	ws := w.Workspace("ann", "dev", tmpl.ID)
	w.Daemon().Next().Finish(coderdtest.Built(stateText("own", 7, 2)))
	olga := w.As("olga")
	latest := w.Get(ws.ID).LatestBuild.ID
	for _, c := range []struct {
		state, want string
		code        fault.Code
		forced      bool // is accepted then
	}{
		{"nonsense", "This is not a Terraform state: not JSON", fault.Invalid, false},
		{`{"version": 4}`, "This is not a Terraform state: no lineage", fault.Invalid, false},
		{stateText("other", 9, 3), "its lineage is other, and the workspace's is own", fault.Conflict, true},
		{stateText("own", 6, 2), "its serial is 6, and the workspace's is 7", fault.Conflict, true},
	} {
		err := olga.UpdateBuildState(t.Context(), latest, sdk.UpdateStateRequest{State: []byte(c.state)})
		if fault.CodeOf(err) != c.code || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("store %s: %v, want %s", c.state, err, c.want)
		}
		_, err = olga.CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, ProvisionerState: []byte(c.state)})
		if fault.CodeOf(err) != c.code || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("build from %s: %v, want %s", c.state, err, c.want)
		}
		err = olga.UpdateBuildState(t.Context(), latest, sdk.UpdateStateRequest{State: []byte(c.state), Force: true})
		if (err == nil) != c.forced {
			t.Errorf("force %s: %v", c.state, err)
		}
		if err := olga.UpdateBuildState(t.Context(), latest, sdk.UpdateStateRequest{State: []byte(stateText("own", 7, 2)), Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := olga.CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{
		Transition: sdk.TransitionStart, ProvisionerState: []byte(stateText("other", 1, 1)), ForceState: true,
	}); err != nil {
		t.Fatal(err)
	}
	if got := string(w.Daemon().Next().Offer.GetWorkspaceBuild().GetState()); got != stateText("other", 1, 1) {
		t.Errorf("the build starts from %s", got)
	}
}
