package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// repository makes a repository with what a release takes from it, and returns its root.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": "license", "build/NOTICES.txt": "notices", "CHANGELOG.md": "# Changelog\n\n## 2.31.10001\n\nThe first release.\n", "packaging/codermesh.service": "unit", "packaging/codermesh-provisionerd.service": "unit",
		"packaging/account-per-job.conf": "unit", "packaging/coder-connect@.service": "unit",
		"packaging/server.env": "settings", "packaging/provisionerd.env": "settings",
		"site/package-lock.json": `{"packages": {
			"": {"version": "1"}, "node_modules/react": {"version": "19.0.0", "license": "MIT"},
			"node_modules/@a/b/node_modules/@c/d": {"version": "2.0.0"}, "node_modules/vite": {"version": "7.0.0", "dev": true}}}`,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, root, "init", "--quiet")
	git(t, root, "add", ".")
	git(t, root, "commit", "--quiet", "--message=docs: begin")
	return root
}

func git(t *testing.T, root string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", args, err, out)
	}
}

// build lays the test's own program out as those of a release, and returns a release of them.
func build(t *testing.T, root string) *release {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	r := &release{version: "2.31.10001", root: root, full: t.TempDir(), cli: t.TempDir(), out: t.TempDir()}
	for _, path := range []string{r.full + "/coder-linux-amd64", r.cli + "/coder-linux-armv7", r.cli + "/coder-windows-arm64.exe"} {
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = string(data)
	}
	return files
}

// Two releases of one commit are equal, whatever the folders and the times of the files in them.
func TestReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	root := repository(t)
	one, two := build(t, root), build(t, root)
	old := time.Unix(1000000000, 0)
	if err := os.Chtimes(filepath.Join(two.full, "coder-linux-amd64"), old, old); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*release{one, two} {
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
	}
	first, second := contents(t, one.out), contents(t, two.out)
	for _, name := range []string{
		"codermesh_2.31.10001_linux_amd64.tar.gz", "codermesh-cli_2.31.10001_linux_armv7.tar.gz", "codermesh-cli_2.31.10001_windows_arm64.zip",
		"codermesh_2.31.10001.cdx.json", "RELEASE_NOTES.md", "SHA256SUMS",
	} {
		if first[name] == "" || first[name] != second[name] {
			t.Errorf("%s: %d and %d bytes, which differ or are missing", name, len(first[name]), len(second[name]))
		}
	}
	if len(first) != 6 || strings.Count(first["SHA256SUMS"], "\n") != 5 {
		t.Errorf("%d files, checksums:\n%s", len(first), first["SHA256SUMS"])
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = one.out
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}

	// The comparison above must be able to fail: another commit time makes another release.
	t.Setenv("SOURCE_DATE_EPOCH", "1767225601")
	if err := two.run(); err != nil {
		t.Fatal(err)
	}
	if contents(t, two.out)["SHA256SUMS"] == first["SHA256SUMS"] {
		t.Error("the commit's time is not in the release")
	}
}

func TestArchive(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	r := build(t, repository(t))
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	packed, err := gzip.NewReader(strings.NewReader(contents(t, r.out)["codermesh_2.31.10001_linux_amd64.tar.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(packed)
	modes := map[string]int64{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[header.Name] = header.Mode
	}
	folder := "codermesh_2.31.10001_linux_amd64/"
	if len(modes) != 9 || modes[folder+"NOTICES.txt"] != 0o644 || modes[folder+"coder"] != 0o755 || modes[folder+"account-per-job.conf"] != 0o644 {
		t.Errorf("members: %v", modes)
	}
}

func TestBillOfMaterials(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	r := build(t, repository(t))
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	var bom struct {
		Format     string `json:"bomFormat"`
		Components []struct {
			URL string `json:"purl"`
		} `json:"components"`
	}
	if err := json.Unmarshal([]byte(contents(t, r.out)["codermesh_2.31.10001.cdx.json"]), &bom); err != nil {
		t.Fatal(err)
	}
	var urls bytes.Buffer
	for _, c := range bom.Components {
		urls.WriteString(c.URL + "\n")
	}
	for _, want := range []string{"pkg:golang/stdlib@1.", "pkg:golang/github.com/CycloneDX/cyclonedx-go@v", "pkg:npm/react@19.0.0\n", "pkg:npm/%40c/d@2.0.0\n"} {
		if !strings.Contains(urls.String(), want) {
			t.Errorf("the list lacks %q:\n%s", want, &urls)
		}
	}
	if bom.Format != "CycloneDX" || strings.Contains(urls.String(), "vite") {
		t.Errorf("format %q, components:\n%s", bom.Format, &urls)
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	root := repository(t)
	r := &release{version: "2.31.10002", root: root, out: t.TempDir()}
	commit := func(subject string) {
		t.Helper()
		git(t, root, "commit", "--quiet", "--allow-empty", "--message="+subject)
	}
	git(t, root, "tag", "v2.31.10001")
	if err := r.notes(); err == nil || !strings.Contains(err.Error(), `write the section "## 2.31.10002"`) {
		t.Errorf("a release that users are told nothing about: %v", err)
	}
	text := "# Changelog\n\n## 2.31.10002\n\nLists are fast.\n\n## 2.31.10001\n\nThe first release.\n"
	if err := os.WriteFile(filepath.Join(root, changelogName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	commit("coderd/jobs: add a queue")
	commit("agent, docs: report the load")
	commit("coderd: speed lists up")
	commit("mend the build")
	if err := r.notes(); err != nil {
		t.Fatal(err)
	}
	want := "\n## Commits since v2.31.10001\n\n### coderd\n\n- add a queue\n- speed lists up\n\n### agent\n\n- report the load\n\n### other\n\n- mend the build\n"
	if got := contents(t, r.out)["RELEASE_NOTES.md"]; !strings.HasSuffix(got, want) || !strings.HasPrefix(got, "# codermesh 2.31.10002\n\nLists are fast.\n\n") {
		t.Errorf("got:\n%s\nwant the end:\n%s", got, want)
	}

	// The tagged commit can be built again; another one needs another number.
	git(t, root, "tag", "v2.31.10002")
	if err := r.notes(); err != nil {
		t.Errorf("the tagged commit: %v", err)
	}
	commit("docs: go on")
	if err := r.notes(); err == nil || !strings.Contains(err.Error(), "raise the number in the file VERSION") {
		t.Errorf("a commit after the tag: %v", err)
	}
}

// Wrong input is refused with a sentence.
func TestRefuses(t *testing.T) {
	root := repository(t)
	t.Setenv("SOURCE_DATE_EPOCH", "")
	r := build(t, root)
	if err := r.run(); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH must be the time") {
		t.Errorf("without a time: %v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	r.cli = t.TempDir()
	if err := r.run(); err == nil || !strings.Contains(err.Error(), "has no programs") {
		t.Errorf("without slim programs: %v", err)
	}
	if err := os.WriteFile(r.cli+"/coder-linux", nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.run(); err == nil || !strings.Contains(err.Error(), "is not named coder-<os>-<arch>") {
		t.Errorf("a program without its processor: %v", err)
	}
	if err := os.Rename(r.cli+"/coder-linux", r.cli+"/coder-linux-amd64"); err != nil {
		t.Fatal(err)
	}
	if err := r.run(); err == nil || !strings.Contains(err.Error(), "read the modules of") {
		t.Errorf("a file that is no Go program: %v", err)
	}
}
