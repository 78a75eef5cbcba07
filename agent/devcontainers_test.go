//go:build linux

package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// Programs that act as devcontainer and docker. A container is the file "container"; the agent in it runs while that exists.
const (
	fakeUp = `#!/bin/sh
echo "$*" >>"$FAKE/ups"
[ ! -e "$FAKE/broken" ] || { echo '{"outcome":"error","message":"the image cannot be built"}'; exit 1; }
echo "building" >&2
echo up >"$FAKE/container"
[ ! -e "$FAKE/slow" ] || { echo "slow" >&2; sleep 600; }
echo '{"outcome":"success","containerId":"c0ffee","remoteUser":"dev","remoteWorkspaceFolder":"/workspaces/app"}'
`
	fakeDocker = `#!/bin/sh
case $1 in
inspect)
	[ -e "$FAKE/container" ] || { echo 'Error: No such container: c0ffee' >&2; exit 1; }
	grep -q up "$FAKE/container" && running=true || running=false
	echo '[{"Id":"c0ffee","Name":"/app_1","State":{"Running":'$running'},"Config":{"Image":"box"}}]' ;;
cp) cat >/dev/null ;;
ps) [ "$*" = "ps -a -q --no-trunc --filter label=devcontainer.local_folder=$PROJECT" ] && [ -e "$FAKE/container" ] && echo c0ffee ;;
exec) echo "agent with $(cat)"; while grep -q up "$FAKE/container" 2>/dev/null; do sleep 0.05; done ;;
stop) echo stopped >"$FAKE/container" ;;
rm) rm -f "$FAKE/container" ;;
esac
`
)

// contained returns a world whose manifest has a dev container, and the folder in which the fakes keep their state.
func contained(t *testing.T) (w *world, id uuid.UUID, source string, fake string) {
	t.Helper()
	script := uuid.New()
	w = newWorld(t, &agentpb.Script{Id: script[:], LogSourceId: script[:], Script: "mkdir -p project", RunOnStart: true})
	fake = t.TempDir()
	bin := filepath.Join(fake, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"devcontainer": fakeUp, "docker": fakeDocker} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	id = uuid.New()
	log := uuid.New()
	w.manifest.Env["PATH"], w.manifest.Env["FAKE"], w.manifest.Env["PROJECT"] = bin+":/usr/bin:/bin", fake, filepath.Join(w.dir, "project")
	w.manifest.Devcontainers = []*agentpb.Devcontainer{{Id: id[:], LogSourceId: log[:], Name: "app", WorkspaceFolder: filepath.Join(w.dir, "project")}}
	return w, id, string(log[:]), fake
}

// readFake returns what a fake keeps.
func readFake(t *testing.T, fake, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fake, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// last returns the last state that the agent has reported of its dev container. The caller must hold the lock.
func (w *world) last() *agentpb.DevcontainerStateRequest {
	if len(w.containers) == 0 {
		return &agentpb.DevcontainerStateRequest{}
	}
	return w.containers[len(w.containers)-1]
}

const (
	running = agentpb.DevcontainerStateRequest_STATE_RUNNING
	stopped = agentpb.DevcontainerStateRequest_STATE_STOPPED
	failed  = agentpb.DevcontainerStateRequest_STATE_ERROR
)

// TestDevcontainers checks the life of a dev container: it begins after the start scripts, is recreated and removed on request, says why it cannot
// be built, and ends with the workspace.
func TestDevcontainers(t *testing.T) {
	t.Parallel()
	w, id, source, fake := contained(t)
	stop := w.run(t)
	is := func(state agentpb.DevcontainerStateRequest_State) func() bool {
		return func() bool { return w.last().GetState() == state }
	}
	// It starts after the start scripts, which make its folder. The agent in it gets the token that the server makes.
	w.until(t, "a running container", is(running))
	w.mu.Lock()
	if got := w.last(); got.GetContainerName() != "app_1" || got.GetImage() != "box" || uuid.UUID(got.GetDevcontainerId()) != id {
		t.Errorf("reported %v", got)
	}
	if len(w.admitted) != 1 || w.admitted[0].GetDirectory() != "/workspaces/app" {
		t.Errorf("admitted %v", w.admitted)
	}
	w.mu.Unlock()
	logged := func(text string) func() bool {
		return func() bool { return strings.Contains(strings.Join(w.lines[source], "\n"), text) }
	}
	w.until(t, "the build's log", logged("building\nagent with token-1"))

	// The container stops, and is recreated on request, with a new token.
	if err := os.WriteFile(filepath.Join(fake, "container"), []byte("stopped"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.until(t, "a stopped container", is(stopped))
	api := w.api(t)
	change := func(change agentpb.ChangeDevcontainerRequest_Change) {
		t.Helper()
		if _, err := api.ChangeDevcontainer(t.Context(), connect.NewRequest(&agentpb.ChangeDevcontainerRequest{DevcontainerId: id[:], Change: change})); err != nil {
			t.Fatal(err)
		}
	}
	change(agentpb.ChangeDevcontainerRequest_CHANGE_RECREATE)
	w.until(t, "another container", func() bool { return is(running)() && len(w.admitted) == 2 })
	w.until(t, "another agent", logged("agent with token-2"))
	if ups := readFake(t, fake, "ups"); strings.Count(ups, "\n") != 2 || !strings.HasSuffix(ups, "--remove-existing-container\n") {
		t.Errorf("devcontainer was run with\n%s", ups)
	}

	// A container that cannot be built says why. Removing leaves none.
	if err := os.WriteFile(filepath.Join(fake, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	change(agentpb.ChangeDevcontainerRequest_CHANGE_RECREATE)
	w.until(t, "an error", func() bool {
		return is(failed)() && w.last().GetError() == "devcontainer up: the image cannot be built"
	})
	if err := os.Remove(filepath.Join(fake, "broken")); err != nil {
		t.Fatal(err)
	}
	change(agentpb.ChangeDevcontainerRequest_CHANGE_RECREATE)
	w.until(t, "a repaired container", is(running))
	change(agentpb.ChangeDevcontainerRequest_CHANGE_REMOVE)
	w.until(t, "no container", func() bool { return is(stopped)() && w.last().GetContainerId() == "" })
	change(agentpb.ChangeDevcontainerRequest_CHANGE_RECREATE)
	w.until(t, "a container again", is(running))

	other := uuid.New()
	for name, req := range map[string]*agentpb.ChangeDevcontainerRequest{
		"another": {DevcontainerId: other[:], Change: agentpb.ChangeDevcontainerRequest_CHANGE_REMOVE}, "unknown change": {DevcontainerId: id[:]},
	} {
		if _, err := api.ChangeDevcontainer(t.Context(), connect.NewRequest(req)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// The workspace takes its containers with it.
	stop()
	if got := readFake(t, fake, "container"); got != "stopped\n" {
		t.Errorf("after the workspace stopped, the container is %q", got)
	}
	if w.last().GetState() != stopped {
		t.Errorf("the last report is %v", w.last())
	}
}

// TestStartingDevcontainerStops checks that a workspace that stops also stops a container that devcontainer up has made and not returned yet.
func TestStartingDevcontainerStops(t *testing.T) {
	t.Parallel()
	w, _, source, fake := contained(t)
	if err := os.WriteFile(filepath.Join(fake, "slow"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop := w.run(t)
	w.until(t, "a container", func() bool { return strings.Contains(strings.Join(w.lines[source], "\n"), "slow") })
	stop()
	if got, err := os.ReadFile(filepath.Join(fake, "container")); err != nil || string(got) != "stopped\n" {
		t.Errorf("after the workspace stopped, the container is %q, %v", got, err)
	}
}

// TestDevcontainerNeedsPrograms checks that a workspace without the programs says so once, and works otherwise.
func TestDevcontainerNeedsPrograms(t *testing.T) {
	t.Parallel()
	w, _, source, fake := contained(t)
	if err := os.Remove(filepath.Join(fake, "bin", "devcontainer")); err != nil {
		t.Fatal(err)
	}
	w.manifest.Env["PATH"] = filepath.Join(fake, "bin") // without what this machine has
	w.manifest.Scripts = nil
	if err := os.Mkdir(filepath.Join(w.dir, "project"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.run(t)
	const want = "no program devcontainer on its PATH: install @devcontainers/cli"
	w.until(t, "an error", func() bool { return strings.Contains(w.last().GetError(), want) })
	w.until(t, "a line of the log", func() bool { return strings.Contains(strings.Join(w.lines[source], "\n"), want) })
	w.until(t, "a ready workspace", func() bool {
		return len(w.states) > 0 && w.states[len(w.states)-1] == agentpb.LifecycleState_LIFECYCLE_STATE_READY
	})
}
