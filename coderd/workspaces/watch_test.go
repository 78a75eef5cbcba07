package workspaces_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// readUntil reads events until the workspace has a status.
func readUntil(t *testing.T, lines *bufio.Reader, want sdk.WorkspaceStatus) {
	t.Helper()
	event := ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("waiting for %s: %v", want, err)
		}
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = strings.TrimSpace(name)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var got sdk.Workspace
		if err := json.Unmarshal([]byte(data), &got); err != nil || event != "data" {
			t.Fatalf("event %q: %v", event, err)
		}
		if got.LatestBuild.Status == want {
			return
		}
	}
}

// readUntilWS is readUntil for a websocket.
func readUntilWS(t *testing.T, conn *websock.Conn, want sdk.WorkspaceStatus) {
	t.Helper()
	for {
		var msg struct {
			Type string
			Data *sdk.Workspace
		}
		if err := conn.ReadJSON(t.Context(), &msg); err != nil {
			t.Fatalf("waiting for %s: %v", want, err)
		}
		if msg.Type == "data" && msg.Data.LatestBuild.Status == want {
			return
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ws := w.Workspace("ann", "dev", w.Template("process", process()).ID)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL.String()+"/api/v2/workspaces/"+ws.ID.String()+"/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(sdk.SessionHeader, w.Token("ann"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type: %q", got)
	}
	lines := bufio.NewReader(resp.Body)
	readUntil(t, lines, sdk.WorkspacePending)

	u := *w.URL
	u.Path = "/api/v2/workspaces/" + ws.ID.String() + "/watch-ws"
	conn, err := websock.Dial(t.Context(), &u, websock.DialOptions{Header: http.Header{sdk.SessionHeader: {w.Token("ann")}}, ReadLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	readUntilWS(t, conn, sdk.WorkspacePending)
	job := w.Daemon().Next()
	readUntil(t, lines, sdk.WorkspaceStarting)
	readUntilWS(t, conn, sdk.WorkspaceStarting)
	job.Finish(coderdtest.Built("s"))
	readUntil(t, lines, sdk.WorkspaceRunning)
	readUntilWS(t, conn, sdk.WorkspaceRunning)
	w.Workspaces.Stop() // ends watches
	for err = error(nil); err == nil; {
		_, err = lines.ReadString('\n')
	}
	for err = error(nil); err == nil; {
		_, err = conn.Read(t.Context())
	}
	if ce, ok := errors.AsType[*websock.CloseError](err); !ok || ce.Status != websock.StatusGoingAway {
		t.Errorf("end of the watch: %v, want going away", err)
	}
}
