package agents_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/pkg/sftp"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/sshmux"
)

// filesWorld is a server with a workspace of ann's, whose agent serves files below home.
type filesWorld struct {
	*world
	agent uuid.UUID
	home  string
	url   *url.URL
	stop  func() // stops the service
}

// withFiles starts a server, and what serves files of a workspace.
func withFiles(t *testing.T) *filesWorld {
	t.Helper()
	home := t.TempDir()
	w := filesAt(t, serveChannels(t, func(channel *sshmux.Channel) {
		server, err := sftp.NewServer(channel, sftp.WithServerWorkingDirectory(home))
		if err == nil {
			_ = server.Serve()
		}
	}))
	w.home = home
	return w
}

// serveChannels accepts SSH channels, as an agent does, and serves each with serve. It returns the address.
func serveChannels(t *testing.T, serve func(*sshmux.Channel)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				mux := sshmux.New(raw, sshmux.Options{Server: true})
				defer mux.Close()
				for opened := range mux.Channels() {
					channel, err := opened.Accept()
					if err != nil {
						return
					}
					running.Go(func() {
						for req := range channel.Requests() {
							_ = req.Reply(true)
						}
					})
					serve(channel)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return l.Addr().String()
}

// filesAt starts a server whose agent's SSH channels are served at an address.
func filesAt(t *testing.T, addr string) *filesWorld {
	t.Helper()
	w, _, id := running(t)
	w.opts.Mesh = &fakeMesh{dial: func(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error) {
		if agent != id || port != meshport.Session {
			return nil, fault.New(fault.Unavailable, "The workspace's agent is not connected.")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}}
	w.opts.Connections = audit.NewConnections(w.DB, w.log)
	life, end := context.WithCancel(context.Background())
	recorded := make(chan struct{})
	go func() { defer close(recorded); w.opts.Connections.Run(life) }()
	t.Cleanup(func() { end(); <-recorded })
	s := agents.New(w.opts)
	s.Start()
	t.Cleanup(s.Stop)
	return &filesWorld{world: w, agent: id, url: w.Serve(s), stop: s.Stop}
}

// request sends a request of a user about files; query has pairs of names and values.
func (w *filesWorld) request(user, method, route string, body io.Reader, query ...string) (*http.Response, string) {
	w.T.Helper()
	resp, err := w.send(user, method, route, body, query...)
	if err != nil {
		w.T.Fatalf("%s %s: %v", method, route, err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		w.T.Fatalf("%s %s: %v", method, route, err)
	}
	return resp, string(content)
}

func (w *filesWorld) send(user, method, route string, body io.Reader, query ...string) (*http.Response, error) {
	w.T.Helper()
	values := url.Values{}
	for pair := range slices.Chunk(query, 2) {
		values.Set(pair[0], pair[1])
	}
	at := w.url.JoinPath("/api/v2/workspaceagents", w.agent.String(), "files", route)
	at.RawQuery = values.Encode()
	req, err := http.NewRequestWithContext(w.T.Context(), method, at.String(), body)
	if err != nil {
		w.T.Fatal(err)
	}
	req.Header.Set(sdk.SessionHeader, w.Token(user))
	return http.DefaultClient.Do(req)
}

// status sends a request of ann's and checks the status of its answer.
func (w *filesWorld) status(want int, method, route string, body io.Reader, query ...string) string {
	w.T.Helper()
	resp, content := w.request("ann", method, route, body, query...)
	if resp.StatusCode != want {
		w.T.Fatalf("%s %s %q: status %d, want %d: %s", method, route, query, resp.StatusCode, want, content)
	}
	return content
}

func (w *filesWorld) list(query ...string) sdk.AgentFiles {
	w.T.Helper()
	var out sdk.AgentFiles
	if err := json.Unmarshal([]byte(w.status(http.StatusOK, http.MethodGet, "", nil, query...)), &out); err != nil {
		w.T.Fatal(err)
	}
	return out
}

func (w *filesWorld) write(name, content string, mode os.FileMode) {
	w.T.Helper()
	if err := os.WriteFile(filepath.Join(w.home, name), []byte(content), mode); err != nil {
		w.T.Fatal(err)
	}
}

// names returns what the home folder has.
func (w *filesWorld) names() []string {
	w.T.Helper()
	entries, err := os.ReadDir(w.home)
	if err != nil {
		w.T.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestListFiles(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	w.write("notes.txt", "hello", 0o640)
	w.write(".hidden", "", 0o600)
	for _, make := range []func() error{
		func() error { return os.Mkdir(filepath.Join(w.home, "src"), 0o755) },
		func() error { return os.Symlink("notes.txt", filepath.Join(w.home, "to-file")) },
		func() error { return os.Symlink("src", filepath.Join(w.home, "to-folder")) },
		func() error { return os.Symlink("nowhere", filepath.Join(w.home, "to-nothing")) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	got := w.list()
	type entry struct {
		name       string
		kind       sdk.AgentFileKind
		size       int64
		mode       string
		target     string
		targetKind sdk.AgentFileKind
	}
	var shown []entry
	for _, f := range got.Files {
		if f.ModifiedAt.IsZero() {
			t.Errorf("%s: no time", f.Name)
		}
		size := f.Size
		if f.Kind == sdk.AgentFileFolder || f.LinkKind != sdk.AgentFileRegular && f.Kind == sdk.AgentFileLink {
			size = 0 // depends on the file system
		}
		shown = append(shown, entry{f.Name, f.Kind, size, f.Mode, f.LinkTarget, f.LinkKind})
	}
	want := []entry{
		{".hidden", "file", 0, "-rw-------", "", ""}, {"notes.txt", "file", 5, "-rw-r-----", "", ""}, {"src", "folder", 0, "drwxr-xr-x", "", ""},
		{"to-file", "link", 5, "Lrwxrwxrwx", "notes.txt", "file"}, {"to-folder", "link", 0, "Lrwxrwxrwx", "src", "folder"},
		{"to-nothing", "link", 0, "Lrwxrwxrwx", "nowhere", ""},
	}
	if diff := cmp.Diff(want, shown, cmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got.Path != w.home || got.Cut {
		t.Errorf("the home folder is %q, cut %t; want %q", got.Path, got.Cut, w.home)
	}
	for p, want := range map[string]string{"~": w.home, "~/src": w.home + "/src", "src": w.home + "/src", w.home + "/src/../src": w.home + "/src", "/": "/"} {
		if got := w.list("path", p); got.Path != want {
			t.Errorf("%q is %q, want %q", p, got.Path, want)
		}
	}
	if got := w.list("path", "to-folder"); got.Path != w.home+"/to-folder" || len(got.Files) != 0 {
		t.Errorf("through a link: %+v", got)
	}
	if msg := w.status(http.StatusNotFound, http.MethodGet, "", nil, "path", "nowhere"); !strings.Contains(msg, "does not exist") {
		t.Errorf("a folder that does not exist: %s", msg)
	}
	w.status(http.StatusConflict, http.MethodGet, "", nil, "path", "notes.txt")
	w.status(http.StatusBadRequest, http.MethodGet, "", nil, "path", strings.Repeat("a/", 2049))
	w.status(http.StatusBadRequest, http.MethodGet, "", nil, "path", "a\x00b")
}

func TestDownloadFile(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	large := strings.Repeat("0123456789abcdef", 20<<10) // many packets
	w.write("large.bin", large, 0o644)
	w.write("page.html", "<script>alert(1)</script>", 0o644)
	w.write("ü \"x\".png", "not really", 0o644)
	w.write("empty", "", 0o644)
	if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "large.bin"); got != large {
		t.Errorf("got %d bytes, want the file's %d", len(got), len(large))
	}
	if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "empty"); got != "" {
		t.Errorf("an empty file has %q", got)
	}
	for limit, want := range map[string]string{"0": "", "1": "0", "40000": large[:40000], "1000000": large} {
		if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "large.bin", "limit", limit); got != want {
			t.Errorf("limit %s: got %d bytes, want %d", limit, len(got), len(want))
		}
	}
	// A page with the dashboard's origin could act as its user. So no file becomes one.
	for name, kind := range map[string]string{"page.html": "application/octet-stream", "ü \"x\".png": "image/png"} {
		resp, _ := w.request("ann", http.MethodGet, "content", nil, "path", name)
		h := resp.Header
		if h.Get("Content-Type") != kind || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment; filename") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Content-Security-Policy") != "default-src 'none'; frame-ancestors 'none'; sandbox" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" ||
			h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", name, h)
		}
	}
	if resp, _ := w.request("ann", http.MethodHead, "content", nil, "path", "large.bin"); resp.ContentLength != int64(len(large)) {
		t.Errorf("HEAD: length %d, want %d", resp.ContentLength, len(large))
	}
	if msg := w.status(http.StatusConflict, http.MethodGet, "content", nil, "path", w.home); !strings.Contains(msg, "folder") {
		t.Errorf("a folder: %s", msg)
	}
	w.status(http.StatusConflict, http.MethodGet, "content", nil, "path", "/dev/zero") // it has no end
	w.status(http.StatusNotFound, http.MethodGet, "content", nil, "path", "nowhere")
	w.status(http.StatusBadRequest, http.MethodGet, "content", nil, "path", "")
	w.status(http.StatusBadRequest, http.MethodGet, "content", nil, "path", "large.bin", "limit", "-1")
	if _, err := os.Stat("/proc/self/status"); err == nil { // it says that it is empty
		if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "/proc/self/status"); !strings.Contains(got, "Pid:") {
			t.Errorf("/proc/self/status: %q", got)
		}
	}
}

func TestUploadFile(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	large := strings.Repeat("0123456789abcdef", 20<<10)
	var made sdk.AgentFile
	if err := json.Unmarshal([]byte(w.status(http.StatusOK, http.MethodPut, "content", strings.NewReader(large), "path", "large.bin")), &made); err != nil {
		t.Fatal(err)
	}
	if made.Name != "large.bin" || made.Size != int64(len(large)) || made.Kind != sdk.AgentFileRegular {
		t.Errorf("made %+v", made)
	}
	read := func(name string) string {
		t.Helper()
		got, err := os.ReadFile(filepath.Join(w.home, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	if read("large.bin") != large {
		t.Error("the file has another content")
	}
	w.status(http.StatusOK, http.MethodPut, "content", http.NoBody, "path", "empty")
	if got := read("empty"); got != "" {
		t.Errorf("an empty upload made %q", got)
	}
	// A file that is there stays, unless it is to be replaced, and then keeps its rights.
	w.write("secret", "old", 0o600)
	w.status(http.StatusConflict, http.MethodPut, "content", strings.NewReader("new"), "path", "secret")
	if got := read("secret"); got != "old" {
		t.Errorf("a refused upload made it %q", got)
	}
	w.status(http.StatusOK, http.MethodPut, "content", strings.NewReader("new"), "path", "secret", "overwrite", "true")
	if info, err := os.Stat(filepath.Join(w.home, "secret")); err != nil || read("secret") != "new" || info.Mode().Perm() != 0o600 {
		t.Errorf("replaced: %q, %v, %v", read("secret"), info, err)
	}
	// A link stays one.
	if err := os.Symlink("secret", filepath.Join(w.home, "link")); err != nil {
		t.Fatal(err)
	}
	w.status(http.StatusOK, http.MethodPut, "content", strings.NewReader("newer"), "path", "link", "overwrite", "true")
	if target, err := os.Readlink(filepath.Join(w.home, "link")); err != nil || target != "secret" || read("secret") != "newer" {
		t.Errorf("through a link: it leads to %q, %v, where %q is", target, err, read("secret"))
	}
	if err := os.Mkdir(filepath.Join(w.home, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.status(http.StatusConflict, http.MethodPut, "content", strings.NewReader("x"), "path", "src", "overwrite", "true")
	w.status(http.StatusNotFound, http.MethodPut, "content", strings.NewReader("x"), "path", "nowhere/file")
	w.status(http.StatusBadRequest, http.MethodPut, "content", strings.NewReader("x"), "path", "src/..")
	if got, want := w.names(), []string{"empty", "large.bin", "link", "secret", "src"}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

// TestBrokenUpload checks that an upload that ends early leaves what was there.
func TestBrokenUpload(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	w.write("data", "whole", 0o644)
	body, send := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		resp, err := w.send("ann", http.MethodPut, "content", body, "path", "data", "overwrite", "true")
		if err == nil {
			resp.Body.Close()
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		failed <- err
	}()
	if _, err := send.Write(bytes.Repeat([]byte("half"), 64<<10)); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the upload has begun", func() error {
		return testwait.Equal(len(w.names()), 2)
	})
	send.CloseWithError(errors.New("the laptop is closed"))
	if err := <-failed; err == nil {
		t.Error("the upload succeeded")
	}
	testwait.Until(t, "the half is gone", func() error {
		if diff := cmp.Diff([]string{"data"}, w.names()); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	if got, err := os.ReadFile(filepath.Join(w.home, "data")); err != nil || string(got) != "whole" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

func TestUploadIsBounded(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.url.JoinPath("/api/v2/workspaceagents", w.agent.String(), "files/content").String()+"?path=huge", &never{})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(sdk.SessionHeader, w.Token("ann"))
	req.Header.Set("Expect", "100-continue")
	req.ContentLength = 10<<30 + 1
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 1 << 40}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge || len(w.names()) != 0 {
		t.Errorf("status %d, files %q", resp.StatusCode, w.names())
	}
}

// never is a body that the server must not ask for.
type never struct{}

func (never) Read([]byte) (int, error) { return 0, errors.New("the body was asked for") }

func TestChangeFiles(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	rename := func(want int, from, to string) {
		t.Helper()
		body, err := json.Marshal(sdk.RenameAgentFileRequest{Path: from, NewPath: to})
		if err != nil {
			t.Fatal(err)
		}
		w.status(want, http.MethodPatch, "", bytes.NewReader(body))
	}
	w.status(http.StatusOK, http.MethodPut, "folder", nil, "path", "src")
	w.status(http.StatusConflict, http.MethodPut, "folder", nil, "path", "src")
	w.write("a", "1", 0o644)
	w.write("b", "2", 0o644)
	rename(http.StatusConflict, "a", "b") // which would be lost
	rename(http.StatusNoContent, "a", "src/a")
	rename(http.StatusNotFound, "a", "c")
	rename(http.StatusBadRequest, "b", "..")
	if msg := w.status(http.StatusConflict, http.MethodDelete, "", nil, "path", "src"); !strings.Contains(msg, "not empty") {
		t.Errorf("a folder with files: %s", msg)
	}
	if err := os.Symlink("src", filepath.Join(w.home, "link")); err != nil {
		t.Fatal(err)
	}
	w.status(http.StatusNoContent, http.MethodDelete, "", nil, "path", "link") // not what it leads to
	w.status(http.StatusNoContent, http.MethodDelete, "", nil, "path", "src/a")
	w.status(http.StatusNoContent, http.MethodDelete, "", nil, "path", "src")
	w.status(http.StatusNotFound, http.MethodDelete, "", nil, "path", "src")
	w.status(http.StatusBadRequest, http.MethodDelete, "", nil, "path", "")
	if got := w.names(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("there are %q, want b", got)
	}
}

// filesRoutes are the requests about files.
var filesRoutes = []struct{ method, route string }{
	{http.MethodGet, ""}, {http.MethodDelete, ""}, {http.MethodPatch, ""}, {http.MethodGet, "content"}, {http.MethodPut, "content"}, {http.MethodPut, "folder"},
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

func (w *filesWorld) filesOf(agent uuid.UUID) *filesWorld {
	other := *w
	other.agent = agent
	return &other
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

// hostile serves SFTP: answer returns what an agent sends for a request, packet by packet, until it returns nil.
func hostile(t *testing.T, answer func(kind byte, id uint32, body []byte) func() []byte) string {
	t.Helper()
	return serveChannels(t, func(channel *sshmux.Channel) {
		for {
			head := make([]byte, 5)
			if _, err := io.ReadFull(channel, head); err != nil {
				return
			}
			body := make([]byte, binary.BigEndian.Uint32(head)-1)
			if _, err := io.ReadFull(channel, body); err != nil {
				return
			}
			next := once(packet(2, 3)) // VERSION, for INIT
			if head[4] != 1 {
				next = answer(head[4], binary.BigEndian.Uint32(body), body[4:])
			}
			for b := next(); b != nil; b = next() {
				if _, err := channel.Write(b); err != nil {
					return
				}
			}
		}
	})
}

// packet returns an SFTP packet whose fields are numbers and strings.
func packet(kind byte, fields ...any) []byte {
	b := []byte{kind}
	for _, f := range fields {
		switch f := f.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(f))
		case uint32:
			b = binary.BigEndian.AppendUint32(b, f)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, f)
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
		}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func once(b []byte) func() []byte {
	return func() []byte {
		out := b
		b = nil
		return out
	}
}

const (
	sftpRead, sftpLstat, sftpOpendir, sftpReaddir, sftpRealpath, sftpStat, sftpOpen = 5, 7, 11, 12, 16, 17, 3
	sftpStatus, sftpHandle, sftpData, sftpNames, sftpAttrs                          = 101, 102, 103, 104, 105
)

// TestHostileAgents checks that an agent cannot exhaust the server: each answers every request, and never ends.
func TestHostileAgents(t *testing.T) {
	t.Parallel()
	folder := func(entries func(id uint32) []byte) func(kind byte, id uint32, body []byte) func() []byte {
		return func(kind byte, id uint32, _ []byte) func() []byte {
			switch kind {
			case sftpRealpath:
				return once(packet(sftpNames, id, 1, "/home", "", 0))
			case sftpOpendir:
				return once(packet(sftpHandle, id, "h"))
			case sftpReaddir:
				return once(entries(id))
			}
			return once(packet(sftpStatus, id, 0, "", ""))
		}
	}
	many := func(name string, n int) func(id uint32) []byte {
		return func(id uint32) []byte {
			fields := []any{id, n}
			for range n {
				fields = append(fields, name, "", 0)
			}
			return packet(sftpNames, fields...)
		}
	}
	t.Run("a folder without end", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, folder(many("x", 1000))))
		if got := w.list(); !got.Cut || len(got.Files) != 10_000 {
			t.Errorf("%d entries, cut %t", len(got.Files), got.Cut)
		}
	})
	t.Run("huge names without end", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, folder(many(strings.Repeat("n", 200<<10), 1))))
		if got := w.list(); !got.Cut || len(got.Files) != 0 {
			t.Errorf("%d entries, cut %t", len(got.Files), got.Cut)
		}
	})
	t.Run("more than was asked for", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, func(_ byte, id uint32, _ []byte) func() []byte {
			return func() []byte { return packet(sftpNames, id, 1, "/home", "", 0) }
		}))
		w.status(http.StatusServiceUnavailable, http.MethodGet, "", nil)
	})
	t.Run("malformed", func(t *testing.T) {
		t.Parallel()
		for name, answer := range map[string][]byte{
			"a long packet": binary.BigEndian.AppendUint32(nil, 1<<31), "another id": packet(sftpNames, 77, 1, "/home", "", 0),
			"a long string": packet(sftpNames, 1, 1, 1<<31-1), "another kind": packet(sftpData, 1, "x"), "nothing": packet(sftpNames),
		} {
			w := filesAt(t, hostile(t, func(byte, uint32, []byte) func() []byte { return once(answer) }))
			if resp, _ := w.request("ann", http.MethodGet, "", nil); resp.StatusCode < 400 || resp.StatusCode == http.StatusInternalServerError {
				t.Errorf("%s: status %d", name, resp.StatusCode)
			}
		}
	})
	file := func(size uint64) func(kind byte, id uint32, body []byte) func() []byte {
		return func(kind byte, id uint32, _ []byte) func() []byte {
			switch kind {
			case sftpStat, sftpLstat:
				return once(packet(sftpAttrs, id, 1|4, size, 0o100644))
			case sftpOpen:
				return once(packet(sftpHandle, id, "h"))
			case sftpRead:
				return once(packet(sftpData, id, strings.Repeat("d", 32<<10)))
			}
			return once(packet(sftpStatus, id, 0, "", ""))
		}
	}
	t.Run("a file longer than it says", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, file(100_000)))
		if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "f"); got != strings.Repeat("d", 100_000) {
			t.Errorf("got %d bytes, want 100000", len(got))
		}
	})
	t.Run("a file without end", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, file(0)))
		resp, err := w.send("ann", http.MethodGet, "content", nil, "path", "f")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); err == nil || n > 64<<20 {
			t.Errorf("got %d bytes, %v; want a broken connection after 64 MiB", n, err)
		}
	})
	t.Run("a size that is none", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, file(1<<63)))
		w.status(http.StatusConflict, http.MethodGet, "content", nil, "path", "f")
	})
	t.Run("a long reason", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, func(_ byte, id uint32, _ []byte) func() []byte {
			return once(packet(sftpStatus, id, 4, strings.Repeat("\x1b<b>", 10_000), ""))
		}))
		if msg := w.status(http.StatusConflict, http.MethodGet, "", nil); len(msg) > 1000 || strings.ContainsRune(msg, 0x1b) {
			t.Errorf("%d bytes: %.100s", len(msg), msg)
		}
	})
}

// TestFilesAtTheSameTime checks that a user cannot hold more than a few connections, and that they end with the
// workspace and the server.
func TestFilesAtTheSameTime(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 32)
	w := filesAt(t, silent(t, asked))
	answers := make(chan int, 8)
	for range 8 {
		go func() {
			resp, err := w.send("ann", http.MethodGet, "", nil)
			if err != nil {
				answers <- 0
				return
			}
			resp.Body.Close()
			answers <- resp.StatusCode
		}()
		<-asked
	}
	w.status(http.StatusTooManyRequests, http.MethodGet, "", nil)
	w.stop()
	for range 8 {
		if status := <-answers; status != http.StatusServiceUnavailable {
			t.Errorf("status %d, want 503: the server stops", status)
		}
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
