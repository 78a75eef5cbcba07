//go:build linux

package agent_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// TestPendingManifest checks that an agent that connects before the build has described it runs nothing until the description is
// complete, and then everything.
func TestPendingManifest(t *testing.T) {
	t.Parallel()
	script := newScript("echo late=$LATE", nil)
	w := newWorld(t)
	w.manifest.Pending, w.manifest.Env, w.manifest.Directory = true, nil, ""
	w.run(t)
	w.mu.Lock()
	if first := w.hellos[0]; !first.GetManifestPending() || first.GetIncarnation() != 1 || first.GetExpandedDirectory() != "" || !slices.Equal(first.GetSubsystems(), []string{"envbuilder"}) {
		t.Errorf("hello of an agent that waits: %v", first)
	}
	if len(w.states) > 0 {
		t.Errorf("an agent that waits reports %v", w.states)
	}
	w.mu.Unlock()
	w.renew(func(m *agentpb.ManifestResponse) {
		m.Pending, m.Env, m.Directory, m.Scripts = false, map[string]string{"LATE": "yes"}, w.dir, []*agentpb.Script{script}
	})
	w.expectStates(t, starting, ready)
	w.until(t, "second hello", func() bool { return len(w.hellos) > 1 })
	w.until(t, "log", func() bool { return len(w.lines[string(script.GetLogSourceId())]) == 1 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if second := w.hellos[1]; second.GetManifestPending() || second.GetExpandedDirectory() != w.dir {
		t.Errorf("hello of the agent that has its manifest: %v", second)
	}
	if diff := cmp.Diff([]string{"late=yes"}, w.lines[string(script.GetLogSourceId())]); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if len(w.hellos) != 2 {
		t.Errorf("%d hellos: the connection was made anew", len(w.hellos))
	}
}

// TestNextBuildInTheSameProcess checks that a build that keeps the agent's process runs its own scripts once, with its own variables,
// and nothing of the previous build.
func TestNextBuildInTheSameProcess(t *testing.T) {
	t.Parallel()
	// The old script still runs when the next build arrives, which ends it.
	old := newScript("echo old; exec sleep 3600", nil)
	w := newWorld(t, old)
	w.run(t)
	w.until(t, "old script's log", func() bool { return len(w.lines[string(old.GetLogSourceId())]) == 1 })
	next := newScript("echo next $LATE", nil)
	// A pending manifest changes nothing.
	w.renew(func(m *agentpb.ManifestResponse) { m.Incarnation, m.Pending, m.Scripts, m.Env = 2, true, nil, nil })
	w.until(t, "hello while the next build runs", func() bool { return len(w.hellos) == 2 })
	w.mu.Lock()
	if w.ended(old, "start") != nil || w.hellos[1].GetExpandedDirectory() != w.dir {
		t.Errorf("a pending manifest ended the script (%v) or changed the folder (%v)", w.ended(old, "start"), w.hellos[1])
	}
	w.mu.Unlock()
	w.renew(func(m *agentpb.ManifestResponse) {
		m.Pending, m.Env, m.Scripts = false, map[string]string{"LATE": "yes"}, []*agentpb.Script{next}
	})
	w.expectStates(t, starting, starting, ready)
	w.until(t, "log", func() bool { return len(w.lines[string(next.GetLogSourceId())]) == 1 })
	// The same manifest again does not run anything a second time.
	w.renew(func(m *agentpb.ManifestResponse) { m.MotdFile = "/etc/motd" })
	w.until(t, "hello", func() bool { return len(w.hellos) == 4 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff([]string{"next yes"}, w.lines[string(next.GetLogSourceId())]); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]agentpb.LifecycleState{starting, starting, ready}, w.states); diff != "" {
		t.Errorf("lifecycle (-want +got):\n%s", diff)
	}
}
