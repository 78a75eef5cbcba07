//go:build unix

package agents_test

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// archives is a server with a folder of archives, and a workspace of ann's.
type archives struct {
	*world
	dir       string
	url       *url.URL
	token     string // of the workspace's agent
	suspended error  // of ann
}

func withArchives(t *testing.T) *archives {
	t.Helper()
	w, _, id := running(t)
	a := &archives{world: w, dir: t.TempDir(), token: "token-" + id.String()}
	w.opts.ArchivesDir = a.dir
	w.opts.Accounts = fakeAccounts{&a.suspended}
	a.url = w.Serve(agents.New(w.opts))
	a.write("editor-1.2.3+x_linux.tar.gz", "the editor")
	return a
}

func (a *archives) write(name, content string) {
	a.T.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), []byte(content), 0o644); err != nil {
		a.T.Fatal(err)
	}
}

// open asks for an archive, by the name as it stands in the address. The caller closes the answer's body.
func (a *archives) open(token, name string, header ...string) *http.Response {
	a.T.Helper()
	req, err := http.NewRequestWithContext(a.T.Context(), http.MethodGet, a.url.String()+"/api/v2/workspaceagents/me/archives/"+name, nil)
	if err != nil {
		a.T.Fatal(err)
	}
	if token != "" {
		req.Header.Set(sdk.SessionHeader, token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.T.Fatal(err)
	}
	return resp
}

func (a *archives) get(token, name string, header ...string) (status int, content string) {
	a.T.Helper()
	resp := a.open(token, name, header...)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		a.T.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func TestArchives(t *testing.T) {
	t.Parallel()
	a := withArchives(t)
	const name = "editor-1.2.3+x_linux.tar.gz"
	if status, got := a.get(a.token, name); status != http.StatusOK || got != "the editor" {
		t.Errorf("%d %q", status, got)
	}
	if status, got := a.get(a.token, name, "Range", "bytes=4-"); status != http.StatusPartialContent || got != "editor" {
		t.Errorf("a part: %d %q", status, got)
	}
	resp := a.open(a.token, name)
	resp.Body.Close()
	if h := resp.Header; h.Get("Content-Type") != "application/octet-stream" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", h)
	}
	// The operator replaces the folder.
	if err := os.Rename(a.dir, a.dir+".old"); err != nil {
		t.Fatal(err)
	}
	if status, _ := a.get(a.token, name); status != http.StatusServiceUnavailable {
		t.Errorf("without the folder: %d", status)
	}
	if err := os.Mkdir(a.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	a.write("next", "")
	if status, got := a.get(a.token, "next"); status != http.StatusOK || got != "" {
		t.Errorf("an empty archive: %d %q", status, got)
	}
}

// TestArchivesOfOthers checks that only a running workspace of an active owner reads archives.
func TestArchivesOfOthers(t *testing.T) {
	t.Parallel()
	a := withArchives(t)
	const name = "editor-1.2.3+x_linux.tar.gz"
	stopped := a.WorkspaceRow("ann", "stopped")
	gone := uuid.New()
	a.store(a.BuildRow(stopped, sdk.TransitionStart, sdk.JobSucceeded), true, resource(gone))
	a.BuildRow(stopped, sdk.TransitionStop, sdk.JobSucceeded)
	for who, token := range map[string]string{
		"no token": "", "an invented token": "token-" + uuid.NewString(), "an owner of the deployment": a.Token("olga"), "the workspace's owner": a.Token("ann"),
		"a stopped workspace": "token-" + gone.String(),
	} {
		if status, got := a.get(token, name); status != http.StatusUnauthorized || strings.Contains(got, "the editor") {
			t.Errorf("%s: %d %q", who, status, got)
		}
	}
	a.suspended = fault.New(fault.Forbidden, "suspended")
	if status, _ := a.get(a.token, name); status != http.StatusForbidden {
		t.Errorf("a suspended owner's workspace: %d", status)
	}
}

// TestArchivesStayInTheirFolder attacks the names of archives.
func TestArchivesStayInTheirFolder(t *testing.T) {
	t.Parallel()
	a := withArchives(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	a.write(".hidden", "the secret")
	for _, make := range []func() error{
		func() error { return os.Mkdir(filepath.Join(a.dir, "folder"), 0o755) },
		func() error {
			return os.WriteFile(filepath.Join(a.dir, "folder", "inside"), []byte("the secret"), 0o644)
		},
		func() error { return os.Symlink(secret, filepath.Join(a.dir, "link")) },
		func() error { return syscall.Mkfifo(filepath.Join(a.dir, "pipe"), 0o644) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	up, err := filepath.Rel(a.dir, secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"absent", "folder", "link", "pipe", ".hidden", "folder%2Finside", url.PathEscape(up), url.PathEscape(secret), "..%2F", "%2E%2E", "%2E", "..%5Csecret",
		strings.Repeat("n", 129), "a%0Ab",
	} {
		if status, got := a.get(a.token, name); status != http.StatusNotFound || strings.Contains(got, "the secret") {
			t.Errorf("%s: %d %q", name, status, got)
		}
	}
	none := a.opts
	none.ArchivesDir = ""
	a.url = a.Serve(agents.New(none))
	if status, got := a.get(a.token, "passwd"); status != http.StatusNotFound || !strings.Contains(got, "--archives-dir") {
		t.Errorf("without archives: %d %q", status, got)
	}
}

// TestArchivesAreBounded checks how large archives are, and how many of them a workspace reads at a time.
func TestArchivesAreBounded(t *testing.T) {
	t.Parallel()
	a := withArchives(t)
	for name, size := range map[string]int64{"huge": 4<<30 + 1, "large": 1 << 30} { // without a block on the disk
		a.write(name, "")
		if err := os.Truncate(filepath.Join(a.dir, name), size); err != nil {
			t.Skip("this file system has no large files: ", err)
		}
	}
	if status, _ := a.get(a.token, "huge"); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a huge archive: %d", status)
	}
	first, second := a.open(a.token, "large"), a.open(a.token, "large") // neither is read
	if status, _ := a.get(a.token, "editor-1.2.3+x_linux.tar.gz"); status != http.StatusTooManyRequests {
		t.Errorf("a third archive: %d", status)
	}
	first.Body.Close()
	defer second.Body.Close()
	testwait.Until(t, "the workspace can fetch again", func() error {
		status, _ := a.get(a.token, "editor-1.2.3+x_linux.tar.gz")
		return testwait.Equal(status, http.StatusOK)
	})
}
