package agents_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/sshmux"
)

// filesRoutes are the requests about files.
var filesRoutes = []struct{ method, route string }{
	{http.MethodGet, ""}, {http.MethodDelete, ""}, {http.MethodPatch, ""}, {http.MethodGet, "content"}, {http.MethodGet, "archive"}, {http.MethodPut, "content"}, {http.MethodPut, "folder"},
}

// TestFilesOfOthers checks that the workspace does not exist for those who may not connect to it, owners of the
// deployment too.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	w.write("secret", "ann's", 0o644)
	for _, user := range []string{"bob", "olga", "tom"} {
		for _, r := range filesRoutes {
			body := `{"path":"secret","new_path":"theirs"}`
			resp, content := w.request(user, r.method, r.route, strings.NewReader(body), "path", "secret", "overwrite", "true")
			if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusForbidden || strings.Contains(content, "ann's") {
				t.Errorf("%s: %s %s: status %d: %s", user, r.method, r.route, resp.StatusCode, content)
			}
		}
	}
	for _, r := range filesRoutes {
		if resp, _ := w.request("", r.method, r.route, nil, "path", "secret"); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a session: %s %s: status %d", r.method, r.route, resp.StatusCode)
		}
	}
	if got, err := os.ReadFile(filepath.Join(w.home, "secret")); err != nil || string(got) != "ann's" || len(w.names()) != 1 {
		t.Errorf("the file has %q, %v; there are %q", got, err, w.names())
	}
}

// TestFilesHaveTheRightsOfTheAccount states that paths are not confined to the home folder: a terminal reaches as far.
func TestFilesHaveTheRightsOfTheAccount(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", filepath.Join(outside, "file")); got != "outside" {
		t.Errorf("got %q", got)
	}
	up, err := filepath.Rel(w.home, filepath.Join(outside, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", up); got != "outside" {
		t.Errorf("through %s: got %q", up, got)
	}
	if os.Geteuid() == 0 {
		return // to whom nothing is closed
	}
	if err := os.Chmod(outside, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(outside, 0o700)
	w.status(http.StatusForbidden, http.MethodGet, "content", nil, "path", filepath.Join(outside, "file"))
}

func TestFilesOfAnAgentThatIsAway(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	away := uuid.New()
	w.store(w.BuildRow(w.WorkspaceRow("ann", "away"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(away))
	w.filesOf(away).status(http.StatusServiceUnavailable, http.MethodGet, "", nil)
	stopped := w.WorkspaceRow("ann", "stopped")
	gone := uuid.New()
	w.store(w.BuildRow(stopped, sdk.TransitionStart, sdk.JobSucceeded), true, resource(gone))
	w.BuildRow(stopped, sdk.TransitionStop, sdk.JobSucceeded)
	if msg := w.filesOf(gone).status(http.StatusConflict, http.MethodGet, "", nil); !strings.Contains(msg, "is not running") {
		t.Errorf("a stopped workspace: %s", msg)
	}
	w.filesOf(uuid.New()).status(http.StatusNotFound, http.MethodGet, "", nil)
}

// TestFilesAreInTheConnectionLog checks that the log has who did what and how many bytes, and no names of files.
func TestFilesAreInTheConnectionLog(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	w.status(http.StatusOK, http.MethodPut, "content", strings.NewReader(strings.Repeat("x", 5000)), "path", "private-name")
	w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "private-name")
	w.list()
	w.status(http.StatusNoContent, http.MethodDelete, "", nil, "path", "private-name")
	var out sdk.ConnectionLogsResponse
	testwait.Until(t, "four connections are logged", func() error {
		logs, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "workspace_owner:ann status:completed", Limit: 100})
		out = logs
		if err == nil {
			err = testwait.Equal(len(logs.ConnectionLogs), 4)
		}
		return err
	})
	done := map[string]sdk.ConnectionLog{}
	for _, l := range out.ConnectionLogs {
		done[l.SlugOrPort] = l
		if l.Type != "ssh" || l.Username != "ann" || l.Path != "proxied" {
			t.Errorf("logged %+v", l)
		}
	}
	if len(done) != 4 || done["files upload"].BytesIn < 5000 || done["files download"].BytesOut < 5000 || done["files list"].ID == uuid.Nil || done["files change"].ID == uuid.Nil {
		t.Errorf("logged %+v", done)
	}
	if text, err := json.Marshal(out); err != nil || strings.Contains(string(text), "private-name") {
		t.Errorf("the log has the file's name: %s, %v", text, err)
	}
}

func TestFilesEndWithTheWorkspace(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	w := filesAt(t, silent(t, asked))
	row, err := w.DB.GetAgentOwner(t.Context(), w.agent)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-asked
		w.revoke(row.WorkspaceID)
	}()
	if msg := w.status(http.StatusConflict, http.MethodGet, "", nil); !strings.Contains(msg, "stopped") {
		t.Errorf("the answer is %s", msg)
	}
}

// silent accepts SSH channels and answers nothing. It reports each channel.
func silent(t *testing.T, asked chan<- struct{}) string {
	t.Helper()
	return serveChannels(t, func(channel *sshmux.Channel) {
		asked <- struct{}{}
		_, _ = io.Copy(io.Discard, channel)
	})
}
