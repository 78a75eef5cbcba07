package apps_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestRefusalsAreRecorded checks that the log has who tried to reach another user's workspace, whichever way they took, and
// nothing for the owner.
func TestRefusalsAreRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	stored := make(chan struct{})
	go func() { defer close(stored); w.Connections.Run(ctx) }()
	attack(t, w, "bob", http.StatusNotFound)
	attack(t, w, "olga", http.StatusForbidden) // an owner of the deployment has no access to users' workspaces either
	w.browser("").open(host("code") + "/")     // which leads to the sign-in page
	ann := w.Join(coderdtest.AsUser(w.Token("ann")))
	if err := ann.Client.Subscribe(t.Context(), w.agent); err != nil {
		t.Fatal(err)
	}
	w.browser("ann").open(host("code") + "/")
	w.Stop()
	cancel()
	<-stored
	got, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "status:refused"})
	if err != nil {
		t.Fatal(err)
	}
	tries := map[string]int{}
	for _, row := range got.ConnectionLogs {
		if row.WorkspaceName != "dev" || row.AgentName != "main" || row.IP != "127.0.0.1" || row.DisconnectReason == "" {
			t.Errorf("row: %+v", row)
		}
		tries[row.Username+" "+row.Type] += row.Refused
	}
	for _, name := range []string{"bob", "olga"} {
		// By id and name in the mesh, and files.
		if tries[name+" ssh"] != 3 || tries[name+" reconnecting_pty"] != 1 || tries[name+" workspace_app"] == 0 {
			t.Errorf("%s: %v", name, tries)
		}
	}
	if len(tries) != 6 {
		t.Errorf("others: %v", tries)
	}
}

// attack tries every way to reach ann's workspace.
func attack(t *testing.T, w *world, name string, want int) {
	t.Helper()
	for _, path := range []string{"/pty?reconnect=" + uuid.NewString(), "/files?path=/"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL.String()+"/api/v2/workspaceagents/"+w.agent.String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(sdk.SessionHeader, w.Token(name))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s, %s: %s", name, path, resp.Status)
		}
	}
	w.browser(name).open(host("code") + "/")
	as := coderdtest.AsUser(w.Token(name))
	as.Name = "ann/dev"
	m := w.Join(as)
	if err := m.Client.Subscribe(t.Context(), w.agent); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("%s in the mesh: %v", name, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestBrowserOnlyIsRecorded checks that the log says why an owner's own program was refused.
func TestBrowserOnlyIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *coderd.Options) { o.BrowserOnly = true })
	ctx, cancel := context.WithCancel(t.Context())
	stored := make(chan struct{})
	go func() { defer close(stored); w.Connections.Run(ctx) }()
	ann := w.Join(coderdtest.AsUser(w.Token("ann")))
	if err := ann.Client.Subscribe(t.Context(), w.agent); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("in the mesh: %v", err)
	}
	cancel()
	<-stored
	got, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "status:refused"})
	if err != nil || len(got.ConnectionLogs) != 1 || got.ConnectionLogs[0].Username != "ann" ||
		got.ConnectionLogs[0].DisconnectReason != "This deployment lets users reach workspaces in the browser only. Open the workspace in the dashboard." {
		t.Errorf("%+v, %v", got, err)
	}
}
