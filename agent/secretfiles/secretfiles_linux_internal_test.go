//go:build linux

package secretfiles

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// home is a home folder with an agent's secrets.
type home struct {
	t      *testing.T
	dir    string
	record string
	log    bytes.Buffer
}

func newHome(t *testing.T) *home {
	h := &home{t: t, dir: t.TempDir()}
	h.record = filepath.Join(t.TempDir(), "secrets.json")
	return h
}

func (h *home) open() *Files {
	return Open(h.dir, h.record, slog.New(slog.NewTextHandler(&h.log, nil)))
}

// apply is what an agent does that has just started, or got another manifest.
func (h *home) apply(pairs ...string) {
	var secrets []*agentpb.Secret
	for i := 0; i < len(pairs); i += 2 {
		secrets = append(secrets, &agentpb.Secret{Name: "s", FilePath: pairs[i], Value: []byte(pairs[i+1])})
	}
	h.open().Apply(secrets)
}

func (h *home) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *home) want(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	got, err := os.ReadFile(path)
	if err != nil || string(got) != text {
		h.t.Fatalf("%s: %q, %v, want %q", name, got, err, text)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
		h.t.Errorf("%s: %v, %v, want a file that only its owner can read", name, info.Mode(), err)
	}
}

// files returns the names in home, with folders.
func (h *home) files() string {
	h.t.Helper()
	var names []string
	err := filepath.WalkDir(h.dir, func(path string, entry os.DirEntry, err error) error {
		if name, _ := filepath.Rel(h.dir, path); err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func TestSecretFiles(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.apply("~/.npmrc", "one", h.dir+"/deep/down/token", "two")
	h.want(".npmrc", "one")
	h.want("deep/down/token", "two")
	if info, err := os.Stat(filepath.Join(h.dir, "deep")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a new folder: %v, %v", info.Mode(), err)
	}
	// A change and a move.
	h.apply("~/.npmrc", "three", "~/token", "two")
	h.want(".npmrc", "three")
	h.want("token", "two")
	if got := h.files(); got != ".npmrc token" {
		t.Errorf("after the move: %s", got)
	}
	// Wider permissions are narrowed again.
	if err := os.Chmod(filepath.Join(h.dir, "token"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.apply("~/.npmrc", "three", "~/token", "two")
	h.want("token", "two")
	h.apply()
	if got := h.files(); got != "" {
		t.Errorf("after the deletion: %s", got)
	}
	if h.log.Len() > 0 {
		t.Errorf("logged: %s", h.log.String())
	}
}

// TestSecretFilesSpareOthers checks that no file is lost that someone else wrote, and that a secret does not get into the log.
func TestSecretFilesSpareOthers(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.write("mine", "my own")
	h.apply("~/mine", "hunter2")
	h.want("mine", "hunter2")
	saved, err := filepath.Glob(filepath.Join(h.dir, "mine.saved-*"))
	if err != nil || len(saved) != 1 {
		t.Fatalf("the file that was there: %v, %v", saved, err)
	}
	if text, err := os.ReadFile(saved[0]); err != nil || string(text) != "my own" {
		t.Errorf("the file that was there has %q, %v", text, err)
	}
	if err := os.Remove(saved[0]); err != nil {
		t.Fatal(err)
	}
	// What a user has changed stays when the secret is deleted.
	h.write("mine", "edited")
	h.apply()
	if text, err := os.ReadFile(filepath.Join(h.dir, "mine")); err != nil || string(text) != "edited" {
		t.Errorf("an edited file: %q, %v", text, err)
	}
	// It has the secret's content already: nothing is moved aside, and the file is the agent's from now on.
	h.write("same", "hunter2")
	h.apply("~/same", "hunter2")
	h.want("same", "hunter2")
	h.apply()
	if got := h.files(); got != "mine" {
		t.Errorf("left: %s", got)
	}
	if strings.Contains(h.log.String(), "hunter2") {
		t.Errorf("the log has a value: %s", h.log.String())
	}
}

// TestSecretFilesStayBelowHome checks that neither a path nor a link leads a secret out of home.
func TestSecretFilesStayBelowHome(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("intact"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"dir": outside, "file": victim, "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(h.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(h.dir, "folder/full"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.apply("~/dir/stolen", "x", "~/dir/victim", "x", "~/loop/x", "x", victim, "x", "~/../victim", "x", "/etc/codermesh-secret", "x", "~/folder", "x", "~/good", "kept")
	h.want("good", "kept")
	// A link itself is replaced, as an editor would, and moved aside.
	h.apply("~/good", "kept", "~/file", "x")
	h.want("file", "x")
	if text, err := os.ReadFile(victim); err != nil || string(text) != "intact" {
		t.Errorf("outside: %q, %v", text, err)
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v", entries, err)
	}
	if _, err := os.Stat("/etc/codermesh-secret"); err == nil {
		t.Error("a secret is in /etc")
	}
	if n := strings.Count(h.log.String(), "cannot write file of secret"); n != 7 {
		t.Errorf("%d complaints, want 7:\n%s", n, h.log.String())
	}
}

// TestSecretFilesAfterACrash checks that an agent that ended between a record and its file neither keeps an old value nor moves its own
// file aside.
func TestSecretFilesAfterACrash(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.apply("~/token", "old")
	f := h.open()
	f.wrote["token"] = append(f.wrote["token"], "sum of the new value, which was not written")
	f.save()
	h.apply("~/token", "newer")
	h.want("token", "newer")
	if got := h.files(); got != "token" {
		t.Errorf("left: %s", got)
	}
}
