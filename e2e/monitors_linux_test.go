package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// smallVolume mounts a volume of 4 MB in a folder, until the test ends.
func smallVolume(t *testing.T, dir string) string {
	t.Helper()
	volume := filepath.Join(dir, "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("e2e", volume, "tmpfs", 0, "size=4m,mode=755"); err != nil {
		t.Fatalf("mount a small volume: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(volume, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return volume
}

// monitored returns a template whose agent monitors its memory, or a volume.
func monitored(main string, memory bool, volume string, volumes bool, threshold int) string {
	const agent = "resource \"coder_agent\" \"main\" {\n"
	block := agent + fmt.Sprintf("  resources_monitoring {\n    memory {\n      enabled   = %t\n      threshold = 1\n    }\n"+
		"    volume {\n      path      = %q\n      enabled   = %t\n      threshold = %d\n    }\n  }\n", memory, volume, volumes, threshold)
	return strings.Replace(main, agent, block, 1)
}

// inbox returns the notifications about a workspace.
func (d *deployment) inbox(workspace string) (titles []string) {
	d.t.Helper()
	var all sdk.ListInboxNotificationsResponse
	d.get("/api/v2/notifications/inbox?format=plaintext", &all)
	for _, n := range all.Notifications {
		if strings.HasPrefix(n.Title, `Workspace "`+workspace+`"`) {
			titles = append(titles, n.Title+": "+n.Content)
		}
	}
	return titles
}

// TestMonitors fills a volume of a workspace, and empties it again: its owner is notified once, also across restarts of the server and
// the agent's connection. Beside it runs a workspace that monitors its memory and not the volume.
func TestMonitors(t *testing.T) {
	t.Parallel()
	asRoot(t)
	d := startServer(t, "--provisioner-isolation", "none") // the agent sees the test's mounts
	volume := smallVolume(t, d.dir)
	d.pushProcess()
	file := filepath.Join(d.dir, "process", "main.tf")
	main, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	monitors := func(memory, volumes bool, threshold int) {
		t.Helper()
		if err := os.WriteFile(file, []byte(monitored(string(main), memory, volume, volumes, threshold)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	push := []string{"templates", "push", "process", "-d", filepath.Dir(file), "-y"}
	monitors(false, true, 180)
	if _, stderr, err := d.try(push...); err == nil || !strings.Contains(stderr, "main.tf") || !strings.Contains(stderr, "range (0 - 100), got 180") {
		t.Fatalf("a threshold of 180: %v\n%s", err, stderr)
	}
	monitors(false, true, 80)
	d.coder(push...)
	d.coder("create", "dev", "-t", "process", "-y")
	monitors(true, false, 1)
	d.coder(push...)
	d.coder("create", "small", "-t", "process", "-y")

	warning := "volume " + volume + " is 87% full (threshold 80%)"
	warns := func() error { return testwait.Contains(d.coder("show", "dev"), warning) }
	if warns() == nil || len(d.inbox("dev")) > 0 {
		t.Fatalf("a warning before the volume is full: %q", d.inbox("dev"))
	}
	data := filepath.Join(volume, "data")
	if err := os.WriteFile(data, make([]byte, 3<<20+1<<19), 0o644); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "coder show warns", warns)
	want := `Workspace "dev" is low on disk space: In your workspace dev, ` + volume + " is 87 % full (threshold 80 %)."
	testwait.Until(t, "a notification", func() error {
		all := d.inbox("dev")
		return testwait.Unless(len(all) == 1 && strings.HasPrefix(all[0], want), "the inbox has %q, want %q", all, want)
	})

	// Every machine uses more than 1 % of its memory. The workspace that does not monitor it is not warned about it, nor the other one
	// about the volume.
	low := regexp.MustCompile(`memory is \d+% full \(threshold 1%\)`)
	testwait.Until(t, "coder show warns about the memory", func() error {
		shown := d.coder("show", "small")
		return testwait.Unless(low.MatchString(shown), "%s", shown)
	})
	testwait.Until(t, "a notification about the memory", func() error {
		all := d.inbox("small")
		warned := len(all) == 1 && strings.HasPrefix(all[0], `Workspace "small" is low on memory: `) && strings.Contains(all[0], "the threshold of 1 %")
		return testwait.Unless(warned, "the inbox has %q", all)
	})
	if dev, small := d.coder("show", "dev"), d.coder("show", "small"); strings.Contains(dev, "memory is") || strings.Contains(small, volume) {
		t.Errorf("a resource that is not monitored is warned about:\n%s%s", dev, small)
	}

	// Neither a new server nor a new connection of the agent repeats it.
	if err := d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the agent is back", warns)
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "coder show no longer warns", func() error {
		shown := d.coder("show", "dev")
		return testwait.Unless(!strings.Contains(shown, warning) && strings.Contains(shown, "connected"), "%s", shown)
	})
	if all := append(d.inbox("dev"), d.inbox("small")...); len(all) != 2 {
		t.Errorf("notifications: %q", all)
	}
}
