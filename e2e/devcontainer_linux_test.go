package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// engine is a Docker engine of the test's own, without a network of containers.
type engine struct {
	t      *testing.T
	socket string
}

func startEngine(t *testing.T) *engine {
	t.Helper()
	program, err := exec.LookPath("dockerd")
	if err != nil {
		t.Fatalf("%v: run scripts/test-prerequisites", err)
	}
	dir, err := os.MkdirTemp("/tmp", "cmdocker") // short: it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t, filepath.Join(dir, "docker.sock")}
	cmd := exec.Command(program, "--host=unix://"+e.socket, "--data-root="+dir+"/data", "--exec-root="+dir+"/exec", "--pidfile="+dir+"/pid",
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--storage-driver=vfs")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stop dockerd: %v", err)
		}
		_ = cmd.Wait() // it ends its containers first; its status is the signal's
		log.Close()
		_ = syscall.Unmount(dir+"/exec/netns/default", syscall.MNT_DETACH) // what containers with the host's network leave; none if none ran
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	testwait.Until(t, "dockerd answers", func() error {
		out, err := e.command("version").CombinedOutput()
		return testwait.Unless(err == nil, "%v: %s", err, out)
	})
	return e
}

func (e *engine) command(args ...string) *exec.Cmd {
	return exec.CommandContext(context.WithoutCancel(e.t.Context()), "docker", append([]string{"-H", "unix://" + e.socket}, args...)...)
}

func (e *engine) docker(args ...string) string {
	e.t.Helper()
	out, err := e.command(args...).CombinedOutput()
	if err != nil {
		e.t.Fatalf("docker %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// box imports an image with busybox and the user dev.
func (e *engine) box() {
	e.t.Helper()
	root := e.t.TempDir()
	script := `set -e
box=$(command -v busybox)
mkdir -p bin etc tmp home/dev workspaces
cp "$box" bin/busybox
for lib in $(ldd "$box" 2>/dev/null | grep -o '/[^ ]*'); do mkdir -p ".${lib%/*}"; cp -L "$lib" ".$lib"; done
for name in sh cat echo id pwd sleep test; do ln -s busybox "bin/$name"; done
echo dev:x:1000:1000::/home/dev:/bin/sh >etc/passwd
chown 1000:1000 home/dev
chmod 1777 tmp
echo boxed >inside`
	cmd := exec.CommandContext(e.t.Context(), "sh", "-c", script)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		e.t.Fatalf("make image: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(e.t.Context(), "sh", "-c", fmt.Sprintf("tar -C %s -c . | docker -H unix://%s import - box", root, e.socket)).CombinedOutput(); err != nil {
		e.t.Fatalf("import image: %v\n%s", err, out)
	}
}

// devcontainerProgram speaks for the program of @devcontainers/cli, which needs a registry for its images: it runs the image box with Docker,
// and answers as the program's documentation says.
const devcontainerProgram = `#!/bin/sh
set -e
while [ $# -gt 0 ]; do
	case $1 in
	--workspace-folder) folder=$2; shift ;;
	--config) config=$2; shift ;;
	--remove-existing-container) docker rm -f app >/dev/null 2>&1 || true ;;
	esac
	shift
done
config=${config:-$folder/.devcontainer.json}
echo "Reading $config" >&2
[ -e "$config" ] || { echo '{"outcome":"error","message":"Dev container config not found."}'; exit 1; }
user=$(sed -n 's/.*"remoteUser": *"\([a-z]*\)".*/\1/p' "$config")
docker start app >/dev/null 2>&1 ||
	docker run -d --name app --label "devcontainer.local_folder=$folder" --network host -v "$folder:/workspaces/app" box /bin/sh -c 'trap "exit 0" TERM; while :; do sleep 1 & wait; done' >/dev/null
printf '{"outcome":"success","containerId":"%s","remoteUser":"%s","remoteWorkspaceFolder":"/workspaces/app"}\n' "$(docker inspect -f '{{.Id}}' app)" "$user"
`

const devcontainerTemplate = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
  env  = { DOCKER_HOST = "unix://%[4]s", PATH = "%[1]s/bin:/usr/bin:/bin:/usr/sbin:/sbin" }
  startup_script = "mkdir -p project && echo '{\"remoteUser\": \"root\"}' >project/.devcontainer.json && echo '{\"remoteUser\": \"dev\"}' >project/chosen.json && echo shared >project/file"
}
resource "coder_devcontainer" "app" {
  agent_id         = coder_agent.main.id
  workspace_folder = "%[1]s/project"
  config_path      = "chosen.json"
}
resource "coder_env" "inside" {
  agent_id = coder_devcontainer.app.subagent_id
  name     = "WHERE"
  value    = "in the dev container"
}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  provisioner "local-exec" {
    command = "cd %[1]s; HOME=%[1]s CODER_AGENT_TOKEN=${coder_agent.main.token} CODER_AGENT_URL=%[2]s setsid %[3]s agent >%[1]s/agent.log 2>&1 </dev/null &"
  }
}
`

// boxed is the workspace dev, which has a dev container.
type boxed struct {
	*deployment
	containers string // the path of the API
	app        string // the id of the agent in the container
}

// boxes creates the workspace, whose agent has a home folder.
func (d *deployment) boxes(e *engine, home string) *boxed {
	t := d.t
	t.Helper()
	template := filepath.Join(d.dir, "template")
	for _, dir := range []string{filepath.Join(home, "bin"), template} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, "bin", "devcontainer"), []byte(devcontainerProgram), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(template, "main.tf"), fmt.Appendf(nil, devcontainerTemplate, home, d.url(), coder, e.socket), 0o644); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "boxes", "-d", template, "-y")
	d.coder("create", "dev", "-t", "boxes", "-y")
	id := map[string]string{}
	for _, a := range d.workspace("dev").LatestBuild.Resources[0].Agents {
		id[a.Name] = a.ID
	}
	if len(id) != 2 {
		t.Fatalf("agents %v", id)
	}
	return &boxed{d, "/api/v2/workspaceagents/" + id["main"] + "/containers", id["app"]}
}

// state returns the state of the dev container.
func (b *boxed) state() (list sdk.AgentContainers) {
	b.t.Helper()
	b.get(b.containers, &list)
	if len(list.Devcontainers) != 1 {
		b.t.Fatalf("containers: %+v", list)
	}
	return list
}

// inside returns the agent in the dev container.
func (b *boxed) inside() (a sdk.WorkspaceAgent) {
	b.t.Helper()
	b.get("/api/v2/workspaceagents/"+b.app, &a)
	return a
}

// running is a check for testwait.Until: the dev container and its agent are ready.
func (b *boxed) running() error {
	a, got := b.inside(), b.state().Devcontainers[0]
	if got.Status == sdk.DevcontainerError {
		b.t.Fatalf("the dev container failed: %s", got.Error)
	}
	return testwait.Unless(got.Status == sdk.DevcontainerRunning && a.Status == sdk.AgentConnected && a.LifecycleState == sdk.LifecycleReady,
		"the container is %s, its agent %s and %s", got.Status, a.Status, a.LifecycleState)
}

// TestDevcontainer runs an agent in a dev container of a real Docker engine: who may enter, what the container's end means, and what remains.
func TestDevcontainer(t *testing.T) {
	t.Parallel()
	asRoot(t)
	e := startEngine(t)
	e.box()
	d := startServer(t, "--provisioner-isolation", "none")
	home := filepath.Join(d.dir, "agent-dev")
	b := d.boxes(e, home)
	testwait.Until(t, "the agent in the dev container is connected", b.running)

	const look = `echo $CODER_WORKSPACE_AGENT_NAME, $WHERE, $(id -un), $(pwd), $(cat file) $(cat /inside)`
	const want = "app, in the dev container, dev, /workspaces/app, shared boxed\n"
	if got := d.coder("ssh", "dev.app", "--", look); got != want {
		t.Errorf("in the dev container: %q, want %q", got, want)
	}
	if got := d.coder("ssh", "dev", "--", "echo $CODER_WORKSPACE_AGENT_NAME $WHERE"); got != "main\n" {
		t.Errorf("in the workspace: %q", got)
	}
	if got := d.coder("show", "dev"); !strings.Contains(got, "└ app") || !strings.Contains(got, "coder ssh dev.app") {
		t.Errorf("coder show:\n%s", got)
	}
	if got := d.coder("logs", "dev"); !strings.Contains(got, "Reading "+home+"/project/chosen.json") {
		t.Errorf("coder logs:\n%s", got)
	}
	d.member("bob")
	if out, stderr, err := d.tryAs("bob", "ssh", "ada/dev.app", "--", "true"); err == nil {
		t.Errorf("another user gets in: %s%s", out, stderr)
	}

	// A new container has a new agent, which people reach as before. The old one's files are gone.
	d.coder("ssh", "dev.app", "--", "echo old >~/old")
	before := b.state().Containers[0]
	if err := call(http.MethodPost, d.url()+b.containers+"/devcontainers/"+b.state().Devcontainers[0].ID.String()+"/recreate", d.token, nil, nil); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "another container runs", func() error {
		if all := b.state().Containers; len(all) != 1 || all[0].ID == before.ID {
			return fmt.Errorf("containers %+v; before, it was %s", all, before.ID)
		}
		return b.running()
	})
	if got := d.coder("ssh", "dev.app", "--", "test -e ~/old || "+look); got != want {
		t.Errorf("in the new dev container: %q, want %q", got, want)
	}

	// A container that ends takes its agent with it, and comes back with it.
	e.docker("stop", "-t", "5", "app")
	testwait.Until(t, "the container is stopped", func() error { return testwait.Equal(b.state().Devcontainers[0].Status, sdk.DevcontainerStopped) })
	if _, stderr, err := d.try("ssh", "dev.app", "--", "true"); err == nil || !strings.Contains(stderr, "dev container") {
		t.Errorf("coder ssh into a stopped dev container: %v, %s", err, stderr)
	}
	if got := d.coder("show", "dev"); !strings.Contains(got, "dev container is stopped") {
		t.Errorf("coder show:\n%s", got)
	}
	e.docker("start", "app")
	testwait.Until(t, "the container runs again", b.running)

	// So does the end of the agent outside, whose successor starts another agent inside.
	connected := b.inside().LastConnectedAt
	for _, pid := range d.agents() {
		if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && program == coder { // the one inside is a copy
			signal(t, pid, syscall.SIGKILL)
		}
	}
	testwait.Until(t, "another agent in the dev container after a crash", func() error {
		if last := b.inside().LastConnectedAt; !last.After(*connected) {
			return fmt.Errorf("the agent connected last at %s, before the crash at %s", last, connected)
		}
		return b.running()
	})
	if got := d.coder("ssh", "dev.app", "--", look); got != want {
		t.Errorf("in the dev container after a crash: %q, want %q", got, want)
	}

	d.coder("stop", "dev", "-y")
	testwait.Until(t, "the workspace's container has stopped", func() error {
		return testwait.Equal(e.docker("inspect", "-f", "{{.State.Running}}", "app"), "false")
	})
}
