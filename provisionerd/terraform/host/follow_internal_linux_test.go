package host

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// put replaces a file, as programs do that write it anew and rename it.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	next := filepath.Join(dir, name+".tmp")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// hostAndSandbox makes the /etc of a host, in which resolv.conf leads to the folder run, and what sandboxes see of it.
func hostAndSandbox(t *testing.T) (hostEtc, run, etc string) {
	t.Helper()
	hostEtc, etc = t.TempDir(), filepath.Join(t.TempDir(), "etc")
	run = filepath.Join(hostEtc, "run")
	for _, dir := range []string{etc, run} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, run, "resolv.conf", "nameserver 10.0.0.1\n")
	if err := os.Symlink("run/resolv.conf", filepath.Join(hostEtc, "resolv.conf")); err != nil {
		t.Fatal(err)
	}
	put(t, hostEtc, "hosts", "127.0.0.1 localhost\n")
	put(t, hostEtc, "passwd", "root:x:0:0::/root:/bin/sh\n")
	put(t, hostEtc, "group", "root:x:0:\n")
	put(t, etc, "resolv.conf", "nameserver 10.0.0.1\n")
	put(t, etc, "hosts", "127.0.0.1 localhost\n")
	put(t, etc, "passwd", "coder:x:7:7::/home:/bin/sh\nroot:x:0:0::/root:/bin/sh\n")
	put(t, etc, "group", "coder:x:7:\nroot:x:0:\n")
	put(t, etc, "nsswitch.conf", "") // the host's own is mounted on it
	return hostEtc, run, etc
}

// TestSandboxesFollowNames replaces files of a host, as its programs do, and reads them in a sandbox that runs meanwhile.
func TestSandboxesFollowNames(t *testing.T) {
	t.Parallel()
	hostEtc, run, etc := hostAndSandbox(t)
	m := new(Host)
	ctx, cancel := context.WithCancel(t.Context())
	looked := make(chan error)
	followed := make(chan error, 1)
	go func() {
		followed <- followNames(ctx, hostEtc, func() {
			select {
			case looked <- m.refreshEtc(hostEtc, etc):
			case <-ctx.Done():
			}
		})
	}()
	await := func(name, want string) {
		t.Helper()
		for {
			if err := <-looked; err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(etc, name)); string(got) == want && err == nil {
				return
			}
		}
	}
	await("hosts", "127.0.0.1 localhost\n")
	sandbox := exec.CommandContext(t.Context(), "bwrap", "--ro-bind", "/", "/", "--ro-bind", etc, "/etc", "/bin/sh", "-c",
		"cat /etc/hosts; read go; cat /etc/resolv.conf /etc/hosts /etc/passwd /etc/group; ls /etc")
	in, err := sandbox.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	sandbox.Stdout = &out
	if err := sandbox.Start(); err != nil {
		t.Fatal(err)
	}
	put(t, run, "resolv.conf", "nameserver 10.0.0.2\n")
	await("resolv.conf", "nameserver 10.0.0.2\n")
	put(t, hostEtc, "hosts", "127.0.0.1 localhost\n10.0.0.3 new\n")
	await("hosts", "127.0.0.1 localhost\n10.0.0.3 new\n")
	put(t, hostEtc, "passwd", "root:x:0:0::/root:/bin/sh\nann:x:9:9::/:/bin/sh\n")
	await("passwd", "coder:x:7:7::/home:/bin/sh\nroot:x:0:0::/root:/bin/sh\nann:x:9:9::/:/bin/sh\n")
	put(t, hostEtc, "group", "root:x:0:\ncoder:x:1:\n")
	if err := os.Remove(filepath.Join(hostEtc, "hosts")); err != nil { // the sandbox keeps it
		t.Fatal(err)
	}
	put(t, hostEtc, "resolv.conf", "nameserver 10.0.0.4\n") // no longer a link
	await("resolv.conf", "nameserver 10.0.0.4\n")
	cancel()
	if err := <-followed; err != nil {
		t.Error(err)
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := sandbox.Wait(); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "nameserver")
	want := " 10.0.0.4\n127.0.0.1 localhost\n10.0.0.3 new\ncoder:x:7:7::/home:/bin/sh\nroot:x:0:0::/root:/bin/sh\nann:x:9:9::/:/bin/sh\n" +
		"coder:x:7:\nroot:x:0:\ngroup\nhosts\nnsswitch.conf\npasswd\nresolv.conf\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the sandbox sees (-want +got):\n%s", diff)
	}
}
