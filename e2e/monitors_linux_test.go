package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/internal/sdk"
)

// TestMonitors fills a volume of a workspace, and empties it again: its owner is notified once, also across restarts of the server and
// the agent's connection.
func TestMonitors(t *testing.T) {
	t.Parallel()
	asRoot(t)
	d := startServer(t, "--provisioner-isolation", "none") // the agent sees the test's mounts
	volume := filepath.Join(d.dir, "volume")
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
	d.pushProcess()
	file := filepath.Join(d.dir, "process", "main.tf")
	main, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const agent = "resource \"coder_agent\" \"main\" {\n"
	monitors := func(threshold string) {
		t.Helper()
		block := agent + "  resources_monitoring {\n    memory {\n      enabled   = true\n      threshold = 100\n    }\n" +
			"    volume {\n      path      = \"" + volume + "\"\n      enabled   = true\n      threshold = " + threshold + "\n    }\n  }\n"
		if err := os.WriteFile(file, []byte(strings.Replace(string(main), agent, block, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	push := []string{"templates", "push", "process", "-d", filepath.Dir(file), "-y"}
	monitors("180")
	if _, stderr, err := d.try(push...); err == nil || !strings.Contains(stderr, "main.tf") || !strings.Contains(stderr, "range (0 - 100), got 180") {
		t.Fatalf("a threshold of 180: %v\n%s", err, stderr)
	}
	monitors("80")
	d.coder(push...)
	d.coder("create", "dev", "-t", "process", "-y")

	inbox := func() (titles []string) {
		var all sdk.ListInboxNotificationsResponse
		d.get("/api/v2/notifications/inbox?format=plaintext", &all)
		for _, n := range all.Notifications {
			titles = append(titles, n.Title+": "+n.Content)
		}
		return titles
	}
	warns := func() bool {
		return strings.Contains(d.coder("show", "dev"), "volume "+volume+" is 87% full (threshold 80%)")
	}
	if warns() || len(inbox()) > 0 {
		t.Fatalf("a warning before the volume is full: %q", inbox())
	}
	data := filepath.Join(volume, "data")
	if err := os.WriteFile(data, make([]byte, 3<<20+1<<19), 0o644); err != nil {
		t.Fatal(err)
	}
	await(t, "coder show warns", warns)
	want := `Workspace "dev" is low on disk space: In your workspace dev, ` + volume + " is 87 % full (threshold 80 %)."
	await(t, "a notification", func() bool { all := inbox(); return len(all) == 1 && strings.HasPrefix(all[0], want) })

	// Neither a new server nor a new connection of the agent repeats it.
	if err := d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the agent is back", warns)
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	await(t, "coder show no longer warns", func() bool {
		return !warns() && strings.Contains(d.coder("show", "dev"), "connected")
	})
	if all := inbox(); len(all) != 1 {
		t.Errorf("notifications: %q", all)
	}
}
