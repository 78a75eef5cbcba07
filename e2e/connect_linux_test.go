package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestConnect reaches workspaces from every program of a laptop, in a network namespace of its own: by name, over HTTP, UDP and SSH. Only the
// programs of one user of the laptop reach them, and those workspaces only that the user may connect to.
func TestConnect(t *testing.T) {
	t.Parallel()
	dev := newDevice(t, "cn", 204)
	const original = "# the laptop's own\nnameserver 192.0.2.1\noptions rotate timeout:1\n"
	resolver := dev.resolver(original)
	d := prepare(t)
	d.args = []string{"--http-address", "0.0.0.0:" + d.port}
	d.begin()
	d.pushProcess()
	d.coder("create", "dev", "-t", "process", "-y")
	d.member("bob")
	if _, stderr, err := d.tryAs("bob", "create", "secret", "-t", "process", "-y"); err != nil {
		t.Fatal(err, stderr)
	}
	token := strings.TrimSpace(d.coder("tokens", "create", "--name", "laptop"))
	dir := filepath.Join("/run", dev.ns) // which the laptop's users may enter
	t.Cleanup(func() { os.RemoveAll(dir) })
	connect := func(args ...string) []string {
		address := "CODER_URL=http://" + net.JoinHostPort(dev.near, d.port)
		return append([]string{"env", address, "CODER_SESSION_TOKEN=" + token, slim, "--verbose", "connect", "--run-dir", dir}, args...)
	}
	up := func() { dev.run(connect("up", "--user", "nobody")...) }
	t.Cleanup(func() {
		_ = dev.command(connect("down")...).Run()
		if text, err := os.ReadFile(filepath.Join(dir, "log")); err == nil && t.Failed() {
			t.Logf("coder connect says:\n%s", text)
		}
	})
	up()

	t.Run("names", func(t *testing.T) {
		address := strings.TrimSpace(dev.run("dig", "+short", "AAAA", "dev.coder"))
		if !net.ParseIP(address).IsGlobalUnicast() {
			t.Fatalf("dev.coder has the address %q", address)
		}
		if name := dev.run("dig", "+short", "-x", address); name != "main.dev.ada.coder.\n" {
			t.Errorf("%s has the name %q", address, name)
		}
		if out := dev.run("getent", "ahosts", "dev.ada.coder"); !strings.HasPrefix(out, address) {
			t.Errorf("dev.ada.coder is %q", out)
		}
		for _, name := range []string{"other.coder", "secret.coder", "secret.bob.coder", "main.secret.bob.coder", "dev.bob.coder"} {
			if out := dev.run("dig", "AAAA", name); !strings.Contains(out, "NXDOMAIN") {
				t.Errorf("%s exists:\n%s", name, out)
			}
		}
	})

	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "you asked for %s", r.Host) }))
	t.Cleanup(web.Close)
	_, port, _ := net.SplitHostPort(web.Listener.Addr().String())
	page := "http://dev.coder:" + port
	user := func(args ...string) []string {
		return append([]string{"setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"}, args...)
	}
	want := "you asked for dev.coder:" + port
	t.Run("ports", func(t *testing.T) {
		if out := dev.run(user("curl", "-sS", page)...); out != want {
			t.Errorf("the page is %q", out)
		}
		if out := dev.run(user("/usr/bin/python3", "-c", askUDP(t, "main.dev.ada.coder"))...); out != "datagram\n" {
			t.Errorf("UDP answers %q", out)
		}
		ssh := []string{"ssh", "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "dev.coder", "echo $CODER_WORKSPACE_NAME; exit 7"}
		if out, stderr, err := output(dev.command(user(ssh...)...)); out != "dev\n" || status(err) != 7 {
			t.Errorf("SSH: %q, %v\n%s", out, err, stderr)
		}
		out, stderr, err := output(dev.command(user("curl", "-sS", "http://dev.coder:4")...))
		if err == nil || !strings.Contains(stderr, "Failed to connect") {
			t.Errorf("a port of the agent's own answers %q, %v: %s", out, err, stderr)
		}
	})

	t.Run("other users", func(t *testing.T) {
		for _, more := range [][]string{nil, {"--interface", "coder0"}} {
			args := append([]string{"setpriv", "--reuid", "daemon", "--regid", "daemon", "--clear-groups", "curl", "-sS", page}, more...)
			if out, stderr, err := output(dev.command(args...)); err == nil || strings.Contains(out, "you asked") {
				t.Errorf("another user gets %q, %s", out, stderr)
			}
		}
		asDaemon := append([]string{"setpriv", "--reuid", "daemon", "--regid", "daemon", "--clear-groups"}, connect("status")...)
		if out, stderr, err := output(dev.command(asDaemon...)); err == nil || !strings.Contains(stderr, "another user") {
			t.Errorf("another user sees %q, %s", out, stderr)
		}
		if _, stderr, err := output(dev.command(connect("up", "--user", "daemon")...)); err == nil || !strings.Contains(stderr, "already up") {
			t.Errorf("a second user connects: %v, %s", err, stderr)
		}
	})

	var st struct {
		User       string
		Keeper     int `json:"keeper_pid"`
		Workspaces []struct{ Names []string }
	}
	look := func() {
		t.Helper()
		st.Workspaces = nil
		if err := json.Unmarshal([]byte(dev.run(user(connect("status", "-o", "json")...)...)), &st); err != nil {
			t.Fatal(err)
		}
	}
	if look(); st.User != "ada" || len(st.Workspaces) != 1 || fmt.Sprint(st.Workspaces[0].Names) != "[dev.coder dev.ada.coder main.dev.ada.coder]" {
		t.Errorf("the status is %+v", st)
	}
	d.coder("stop", "dev", "-y")
	testwait.Until(t, "a stopped workspace has no name", func() error {
		if out := dev.run("dig", "AAAA", "dev.coder"); !strings.Contains(out, "NXDOMAIN") {
			return errors.New(out)
		}
		return nil
	})
	d.coder("rename", "dev", "renamed", "-y")
	d.coder("start", "renamed", "-y")
	testwait.Until(t, "a renamed workspace has its new name", func() error {
		return dev.command(user("curl", "-sS", "http://renamed.coder:"+port)...).Run()
	})

	t.Run("killed", func(t *testing.T) {
		look()
		if err := syscall.Kill(st.Keeper, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the server has ended", func() error {
			if _, stderr, _ := output(dev.command(connect("status")...)); !strings.Contains(stderr, "not up") {
				return errors.New(stderr)
			}
			return nil
		})
		if text, err := os.ReadFile(resolver); err != nil || !strings.Contains(string(text), "coder connect wrote") {
			t.Errorf("a killed keeper has restored the resolver: %s, %v", text, err)
		}
		// It takes back what the other has left, once the server, which resets its connections first, has ended.
		testwait.Until(t, "the laptop connects again", func() error { return dev.command(connect("up", "--user", "nobody")...).Run() })
		dev.run(user("curl", "-sS", "http://renamed.coder:"+port)...)
		dev.run(user(connect("down")...)...)
		if text, err := os.ReadFile(resolver); err != nil || string(text) != original {
			t.Errorf("the resolver's file is %q, %v", text, err)
		}
		if rules := dev.run("ip", "-6", "rule"); strings.Contains(rules, "20552") {
			t.Errorf("rules are left: %s", rules)
		}
		if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(st.Keeper), "exe")); err == nil {
			t.Error("the killed keeper runs")
		}
	})
}
