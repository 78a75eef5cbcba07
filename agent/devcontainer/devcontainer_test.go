//go:build linux

package devcontainer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/devcontainer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// programs returns a host with scripts as its programs, and its folder. Each script runs in its own folder.
func programs(t *testing.T, scripts map[string]string) (devcontainer.Host, *bytes.Buffer, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out := &bytes.Buffer{}
	return devcontainer.Host{Env: []string{"PATH=.:" + dir, "DIR=" + dir, "REST=/usr/bin:/bin", "HTTPS_PROXY=http://proxy"}, Output: out}, out, dir
}

const inspected = `echo '[{"Id": "c0ffee", "Name": "/app_1", "State": {"Running": true}, "Config": {"Image": "box"}}]'`

func TestUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scripts map[string]string
		want    string // of the error
	}{
		"works": {map[string]string{"docker": inspected, "devcontainer": `[ "$*" = "up --workspace-folder $PWD --config $PWD/x.json --remove-existing-container" ] || exit 9
echo building >&2; echo '{"outcome":"success","containerId":"c0ffee","remoteUser":"dev","remoteWorkspaceFolder":"/workspaces/app"}'`}, ""},
		"no docker":       {map[string]string{"devcontainer": "exit 0"}, "no program docker on its PATH: install Docker's command line"},
		"no devcontainer": {map[string]string{"docker": inspected}, "no program devcontainer on its PATH: install @devcontainers/cli"},
		"fails": {map[string]string{"docker": inspected, "devcontainer": `printf %s '{"outcome":"error","message":"Command failed: docker build\nlong","description":"An error"}'; exit 1`},
			"devcontainer up: Command failed: docker build"},
		"says nothing": {map[string]string{"docker": inspected, "devcontainer": "exit 3"}, "has not said how it ended"},
		"an option instead of an id": {map[string]string{"docker": inspected, "devcontainer": `echo '{"outcome":"success","containerId":"--privileged"}'`},
			`container id "--privileged"`},
		"no engine": {map[string]string{"docker": "echo 'Cannot connect to the Docker daemon' >&2; exit 1", "devcontainer": `echo '{"outcome":"success","containerId":"c0ffee"}'`},
			"docker inspect: Cannot connect to the Docker daemon"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, out, dir := programs(t, c.scripts)
			got, err := h.Up(t.Context(), devcontainer.Spec{Folder: dir, Config: "x.json", Fresh: true})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want %q in one line", err, c.want)
				}
				return
			}
			want := devcontainer.Container{ID: "c0ffee", Name: "app_1", Image: "box", Running: true, User: "dev", Directory: "/workspaces/app"}
			if err != nil || got != want || out.String() != "building\n" {
				t.Errorf("got %+v, %v, log %q", got, err, out)
			}
		})
	}
	h, _, dir := programs(t, nil)
	if _, err := h.Up(t.Context(), devcontainer.Spec{Folder: dir + "/none"}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("no folder: %v", err)
	}
}

// TestUpEndsWithItsContext checks that nothing of a build remains that was given up.
func TestUpEndsWithItsContext(t *testing.T) {
	t.Parallel()
	h, _, dir := programs(t, map[string]string{"docker": inspected, "devcontainer": `(PATH=$REST; echo $$ >"$DIR/pid"; sleep 600) & wait`})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := h.Up(ctx, devcontainer.Spec{Folder: dir})
		ended <- err
	}()
	testwait.Until(t, "the build begins", func() error {
		data, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err == nil && len(data) == 0 {
			err = errors.New("an empty file")
		}
		return err
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("a build that was given up succeeded")
	}
}

func TestInspectNone(t *testing.T) {
	t.Parallel()
	h, _, _ := programs(t, map[string]string{"docker": "echo 'Error: No such container: x' >&2; exit 1"})
	if got, err := h.Inspect(t.Context(), "x"); err != nil || got.ID != "" || got.Running {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestAgentGetsItsToken checks what docker is told, and that the token is neither an argument nor a variable.
func TestAgentGetsItsToken(t *testing.T) {
	t.Parallel()
	h, _, dir := programs(t, map[string]string{"docker": `PATH=$REST
case $1 in
cp) cat >"$DIR/tar" ;;
exec) cat >"$DIR/stdin"; echo "$*" >"$DIR/args"; env >"$DIR/env" ;;
esac`})
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if err := h.Install(t.Context(), "c0ffee", program); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(dir, "tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	names := ""
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if err != nil {
			break
		}
		names += header.Name + " "
	}
	if names != ".coder-agent/ .coder-agent/coder " {
		t.Errorf("copied %s", names)
	}
	if err := h.RunAgent(t.Context(), devcontainer.Container{ID: "c0ffee", User: "dev"}, devcontainer.Agent{URL: "http://server/", Token: "s3cret"}); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const args = "exec -i -e CODER_AGENT_URL=http://server/ -e HTTPS_PROXY -u dev c0ffee /.coder-agent/coder agent --agent-token-file /dev/stdin\n"
	if got := read("args"); got != args || read("stdin") != "s3cret" || strings.Contains(read("env"), "s3cret") {
		t.Errorf("docker got %q with %q", got, read("stdin"))
	}
}
