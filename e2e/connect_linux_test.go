package e2e_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// ownResolver is the laptop's resolver file before it connects.
const ownResolver = "# the laptop's own\nnameserver 192.0.2.1\noptions rotate timeout:1\n"

// connected is a laptop in a network namespace of its own that runs coder connect. Two users have a workspace each on the deployment: ada, whose laptop
// it is, dev; and bob, secret.
type connected struct {
	d          *deployment
	dev        *device
	dir        string // what coder connect keeps while it is up
	resolver   string // the laptop's file
	token, bob string // of ada, and of bob
	port       string // where workspaces serve a page
}

// newConnected starts the deployment, its workspaces and a page in them. Nothing is connected yet.
func newConnected(t *testing.T) *connected {
	t.Helper()
	c := &connected{dev: newDevice(t, "cn"), d: prepare(t)}
	c.resolver = c.dev.resolver(ownResolver)
	c.d.args = []string{"--http-address", "0.0.0.0:" + c.d.port}
	c.d.begin()
	c.d.pushProcess()
	c.d.coder("create", "dev", "-t", "process", "-y")
	c.bob = c.d.member("bob")
	if _, stderr, err := c.d.tryAs("bob", "create", "secret", "-t", "process", "-y"); err != nil {
		t.Fatal(err, stderr)
	}
	c.token = strings.TrimSpace(c.d.coder("tokens", "create", "--name", "laptop"))
	c.dir = filepath.Join("/run", c.dev.ns) // which the laptop's users may enter
	t.Cleanup(func() { os.RemoveAll(c.dir) })
	t.Cleanup(func() { // in which the context of dev.command has ended
		out, err := exec.Command("ip", append([]string{"netns", "exec", c.dev.ns}, c.connect("down")...)...).CombinedOutput()
		if t.Failed() {
			t.Logf("coder connect down: %v\n%s", err, out)
		}
		if text, err := os.ReadFile(filepath.Join(c.dir, "log")); err == nil && t.Failed() {
			t.Logf("coder connect says:\n%s", text)
		}
	})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "you asked for %s", r.Host) }))
	t.Cleanup(web.Close)
	_, c.port, _ = net.SplitHostPort(web.Listener.Addr().String())
	return c
}

// connect is a command of coder connect with ada's token.
func (c *connected) connect(args ...string) []string { return c.connectAs(c.token, args...) }

func (c *connected) connectAs(token string, args ...string) []string {
	address := "CODER_URL=http://" + net.JoinHostPort(c.dev.near, c.d.port)
	return append([]string{"env", address, "CODER_SESSION_TOKEN=" + token, slim, "--verbose", "connect", "--run-dir", c.dir}, args...)
}

// page is the address of the page in a workspace, and answer what is there.
func (c *connected) page(workspace string) string { return "http://" + workspace + ".coder:" + c.port }

func (c *connected) answer(workspace string) string {
	return "you asked for " + workspace + ".coder:" + c.port
}

// as runs a command as a user of the laptop, and asNobody as the one who may use the connection.
func as(user, group string, args ...string) []string {
	return append([]string{"setpriv", "--reuid", user, "--regid", group, "--clear-groups"}, args...)
}

func asNobody(args ...string) []string { return as("nobody", "nogroup", args...) }

// connectStatus is what coder connect status prints as JSON.
type connectStatus struct {
	User       string
	Keeper     int `json:"keeper_pid"`
	Workspaces []struct{ Names []string }
}

func (c *connected) status(t *testing.T) (st connectStatus) {
	t.Helper()
	if err := json.Unmarshal([]byte(c.dev.run(asNobody(c.connect("status", "-o", "json")...)...)), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestConnect reaches workspaces from every program of a laptop, in a network namespace of its own: by name, over HTTP, UDP and SSH. Only the
// programs of one user of the laptop reach them, and those workspaces only that the user may connect to.
func TestConnect(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	c.dev.run(c.connect("up", "--user", "root")...) // whose files the clients' keys are
	t.Run("SSH", func(t *testing.T) { deviceSSH(t, c.d, c.dev) })
	c.dev.run(c.connect("down")...)
	c.dev.run(c.connect("up", "--user", "nobody")...)
	t.Run("names", c.hasNames)
	t.Run("ports", c.hasPorts)
	t.Run("ping", c.isPinged)
	t.Run("psql", c.hasDatabase)
	t.Run("other users", c.refusesUsers)
	c.follows(t)
	t.Run("restart of the server", c.restart)
	t.Run("killed", c.recovers)
	t.Run("systemd-resolved", c.usesResolved)
	t.Run("second user, beside a VPN", c.isBesideVPN)
}

// hasNames checks names and addresses of the own workspaces, and that no other has one.
func (c *connected) hasNames(t *testing.T) {
	address := strings.TrimSpace(c.dev.run("dig", "+short", "AAAA", "dev.coder"))
	if !net.ParseIP(address).IsGlobalUnicast() {
		t.Fatalf("dev.coder has the address %q", address)
	}
	if name := c.dev.run("dig", "+short", "-x", address); name != "main.dev.ada.coder.\n" {
		t.Errorf("%s has the name %q", address, name)
	}
	if out := c.dev.run("getent", "ahosts", "dev.ada.coder"); !strings.HasPrefix(out, address) {
		t.Errorf("dev.ada.coder is %q", out)
	}
	for _, name := range []string{"other.coder", "secret.coder", "secret.bob.coder", "main.secret.bob.coder", "dev.bob.coder"} {
		if out := c.dev.run("dig", "AAAA", name); !strings.Contains(out, "NXDOMAIN") {
			t.Errorf("%s exists:\n%s", name, out)
		}
	}
}

// hasPorts checks TCP, UDP and SSH, and that the agent's own ports are closed.
func (c *connected) hasPorts(t *testing.T) {
	if out := c.dev.run(asNobody("curl", "-sS", c.page("dev"))...); out != c.answer("dev") {
		t.Errorf("the page is %q", out)
	}
	if out := c.dev.run(asNobody("/usr/bin/python3", "-c", askUDP(t, "main.dev.ada.coder"))...); out != "datagram\n" {
		t.Errorf("UDP answers %q", out)
	}
	ssh := []string{"ssh", "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "dev.coder", "echo $CODER_WORKSPACE_NAME; exit 7"}
	if out, stderr, err := output(c.dev.command(asNobody(ssh...)...)); out != "dev\n" || status(err) != 7 {
		t.Errorf("SSH: %q, %v\n%s", out, err, stderr)
	}
	out, stderr, err := output(c.dev.command(asNobody("curl", "-sS", "http://dev.coder:4")...))
	if err == nil || !strings.Contains(stderr, "Failed to connect") {
		t.Errorf("a port of the agent's own answers %q, %v: %s", out, err, stderr)
	}
}

// isPinged pings a workspace.
func (c *connected) isPinged(t *testing.T) {
	raw := append([]string{"setpriv", "--inh-caps", "+net_raw", "--ambient-caps", "+net_raw"}, asNobody()[1:]...)
	if out := c.dev.run(append(raw, "ping", "-c", "1", "-W", "60", "dev.coder")...); !strings.Contains(out, " 0% packet loss") {
		t.Errorf("ping says:\n%s", out)
	}
}

// hasDatabase uses a database in a workspace.
func (c *connected) hasDatabase(t *testing.T) {
	database, err := url.Parse(strings.TrimSpace(c.d.coder("server", "postgres-builtin-url")))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := database.User.Password()
	socket := filepath.Join(database.Query().Get("host"), ".s.PGSQL."+database.Query().Get("port"))
	port := forwardTo(t, "unix", socket)
	psql := asNobody("env", "PGPASSWORD="+password, "psql", "-h", "dev.coder", "-p", port, "-U", database.User.Username(), "-d", "postgres")
	if out := c.dev.run(append(psql, "-Atc", "SELECT repeat('x', 100000)")...); out != strings.Repeat("x", 100000)+"\n" {
		t.Errorf("the database answers %d bytes", len(out))
	}
}

// refusesUsers checks that the laptop's other users reach nothing, see nothing and connect nothing.
func (c *connected) refusesUsers(t *testing.T) {
	for _, more := range [][]string{nil, {"--interface", "coder0"}} {
		args := append(as("daemon", "daemon", "curl", "-sS", c.page("dev")), more...)
		if out, stderr, err := output(c.dev.command(args...)); err == nil || strings.Contains(out, "you asked") {
			t.Errorf("another user gets %q, %s", out, stderr)
		}
	}
	asDaemon := as("daemon", "daemon", c.connect("status")...)
	if out, stderr, err := output(c.dev.command(asDaemon...)); err == nil || !strings.Contains(stderr, "another user") {
		t.Errorf("another user sees %q, %s", out, stderr)
	}
	if _, stderr, err := output(c.dev.command(c.connect("up", "--user", "daemon")...)); err == nil || !strings.Contains(stderr, "already up") {
		t.Errorf("a second user connects: %v, %s", err, stderr)
	}
}

// follows checks that names come and go with workspaces: one stops, gets another name and starts, and one is created.
func (c *connected) follows(t *testing.T) {
	if st := c.status(t); st.User != "ada" || len(st.Workspaces) != 1 || fmt.Sprint(st.Workspaces[0].Names) != "[dev.coder dev.ada.coder main.dev.ada.coder]" {
		t.Errorf("the status is %+v", st)
	}
	c.d.coder("stop", "dev", "-y")
	testwait.Until(t, "a stopped workspace has no name", func() error {
		if out := c.dev.run("dig", "AAAA", "dev.coder"); !strings.Contains(out, "NXDOMAIN") {
			return errors.New(out)
		}
		return nil
	})
	c.d.coder("rename", "dev", "renamed", "-y")
	c.d.coder("start", "renamed", "-y")
	testwait.Until(t, "a renamed workspace has its new name", func() error {
		return c.dev.command(asNobody("curl", "-sS", c.page("renamed"))...).Run()
	})

	c.d.coder("create", "second", "-t", "process", "-y")
	testwait.Until(t, "a new workspace has a name", func() error {
		return c.dev.command(asNobody("curl", "-sS", c.page("second"))...).Run()
	})
}

// restart kills the server and starts it again, while a connection stays.
func (c *connected) restart(t *testing.T) {
	echo := c.dev.openEcho(t, asNobody("/usr/bin/python3"), "renamed.coder")
	echo("before")
	if err := c.d.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.d.start(); err != nil {
		t.Fatal(err)
	}
	echo("after")
}

// recovers kills the keeper: the next one takes back what it has left.
func (c *connected) recovers(t *testing.T) {
	st := c.status(t)
	if err := syscall.Kill(st.Keeper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.dev.run("flock", filepath.Join(c.dir, "lock"), "true") // the keeper has ended
	if text, err := os.ReadFile(c.resolver); err != nil || !strings.Contains(string(text), "coder connect wrote") {
		t.Errorf("a killed keeper has restored the resolver: %s, %v", text, err)
	}
	// It waits for the end of the server, which resets its connections first, and takes back what both have left.
	c.dev.run(append(c.connect("up", "--user", "nobody"), "--disable-direct-connections")...)
	c.dev.run(asNobody("curl", "-sS", c.page("renamed"))...)
	t.Run("restart of the relay", c.restart)
	c.dev.run(asNobody(c.connect("down")...)...)
	if text, err := os.ReadFile(c.resolver); err != nil || string(text) != ownResolver {
		t.Errorf("the resolver's file is %q, %v", text, err)
	}
	if rules := c.dev.run("ip", "-6", "rule"); strings.Contains(rules, "20552") {
		t.Errorf("rules are left: %s", rules)
	}
	if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(st.Keeper), "exe")); err == nil {
		t.Error("the killed keeper runs")
	}
}

// usesResolved connects a laptop whose names are systemd-resolved's.
func (c *connected) usesResolved(t *testing.T) {
	const stub = "nameserver 127.0.0.53\n"
	resolver := c.dev.resolver(stub)
	prefix, program := c.dev.resolved(t)
	inside := resolvedLaptop(prefix)
	path := "PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH")
	inside.run(t, append([]string{"env", path}, c.connect("up", "--user", "nobody")...)...)
	if out := inside.run(t, c.connect("status")...); !strings.Contains(out, "names by systemd-resolved") {
		t.Errorf("the status is %s", out)
	}
	address := strings.Fields(inside.run(t, "getent", "ahosts", "renamed.coder"))[0]
	if out := inside.run(t, program, "query", "renamed.coder"); !strings.Contains(out, address) || !strings.Contains(out, "link: coder0") {
		t.Errorf("%s has the name, and resolvectl says:\n%s", address, out)
	}
	if out := inside.run(t, program, "query", address); !strings.Contains(out, "main.renamed.ada.coder") {
		t.Errorf("resolvectl says about %s:\n%s", address, out)
	}
	if out := inside.run(t, asNobody("curl", "-sS", c.page("renamed"))...); out != c.answer("renamed") {
		t.Errorf("the page is %q", out)
	}
	for _, name := range []string{"secret.bob.coder", "example.com"} { // there is no name server for others
		_, stderr, err := output(exec.CommandContext(t.Context(), inside[0], append(inside[1:], program, "query", name)...))
		if err == nil || name == "example.com" && !strings.Contains(stderr, "No appropriate name servers") {
			t.Errorf("%s: %v, %s", name, err, stderr)
		}
	}
	inside.run(t, asNobody(c.connect("down")...)...)
	if out := inside.run(t, program, "dns"); strings.Contains(out, "coder0") {
		t.Errorf("systemd-resolved still knows us:\n%s", out)
	}
	if text, err := os.ReadFile(resolver); err != nil || string(text) != stub {
		t.Errorf("the resolver's file is %q, %v", text, err)
	}
}

// resolvedLaptop runs commands beside systemd-resolved.
type resolvedLaptop []string

func (inside resolvedLaptop) run(t *testing.T, args ...string) string {
	t.Helper()
	out, stderr, err := output(exec.CommandContext(t.Context(), inside[0], append(inside[1:], args...)...))
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", args, err, out, stderr)
	}
	return out
}

// isBesideVPN connects as the laptop's second user, while another VPN has its routes.
func (c *connected) isBesideVPN(t *testing.T) {
	const vpn = "fd3b:8e1f:47c2:ffff::/64"
	c.dev.run("ip", "link", "add", "vpn0", "type", "veth", "peer", "name", "vpn1")
	c.dev.run("ip", "link", "set", "vpn0", "up")
	c.dev.run("ip", "-6", "route", "add", vpn, "dev", "vpn0", "table", "51820")
	c.dev.run("ip", "-6", "rule", "add", "lookup", "51820", "priority", "32000")
	others := func() string {
		return c.dev.run("ip", "-6", "rule") + c.dev.run("ip", "-6", "route", "show", "table", "51820")
	}
	before := others()
	_, said, err := output(c.dev.command(c.connectAs(c.bob, "up", "--user", "daemon")...))
	if err != nil || !strings.Contains(said, vpn+" dev vpn0") {
		t.Errorf("another VPN is not reported: %v, %s", err, said)
	}
	secret := []string{"curl", "-sS", c.page("secret")}
	if out := c.dev.run(as("daemon", "daemon", secret...)...); out != c.answer("secret") {
		t.Errorf("the second user gets %q", out)
	}
	if out, stderr, err := output(c.dev.command(asNobody(secret...)...)); err == nil {
		t.Errorf("the first user gets %q, %s from the second one's workspace", out, stderr)
	}
	if out := c.dev.run("dig", "AAAA", "renamed.coder"); !strings.Contains(out, "NXDOMAIN") {
		t.Errorf("the first user's workspace has a name for the second:\n%s", out)
	}
	if _, stderr, err := output(c.dev.command(asNobody(c.connect("down")...)...)); err == nil || !strings.Contains(stderr, "another user") {
		t.Errorf("the first user ends the second one's: %v, %s", err, stderr)
	}
	c.dev.run(as("daemon", "daemon", c.connectAs(c.bob, "down")...)...)
	if after := others(); after != before {
		t.Errorf("the other VPN has\n%s\nafter\n%s", after, before)
	}
}

// forwardTo starts a service that passes connections on, and returns its port.
func forwardTo(t *testing.T, network, address string) (port string) {
	t.Helper()
	return serveTCP(t, func(conn net.Conn) {
		to, err := net.Dial(network, address)
		if err != nil {
			return
		}
		defer to.Close()
		go func() {
			_, _ = io.Copy(to, conn)
			to.Close()
		}()
		_, _ = io.Copy(conn, to)
	})
}

// serveTCP starts a service, and returns its port.
func serveTCP(t *testing.T, serve func(net.Conn)) (port string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port
}

// openEcho opens a TCP connection from the device to a service of the workspace that sends everything back, with a Python that is to be run as the
// user. The function that it returns fails the test unless a line comes back.
func (d *device) openEcho(t *testing.T, python []string, host string) (echo func(line string)) {
	t.Helper()
	port := serveTCP(t, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	cmd := d.command(append(python, "-c", `import socket, sys
stream = socket.create_connection(sys.argv[1:3]).makefile("rw")
for line in sys.stdin:
    stream.write(line)
    stream.flush()
    print(stream.readline(), end="", flush=True)`, host, port)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	return func(line string) {
		t.Helper()
		fmt.Fprintln(stdin, line)
		if !lines.Scan() || lines.Text() != line {
			t.Fatalf("%q comes back as %q, %v", line, lines.Text(), lines.Err())
		}
	}
}

// resolved runs systemd-resolved on the device, with a message bus and a /run of its own. It returns what runs a command beside it, and the path of
// resolvectl.
func (d *device) resolved(t *testing.T) (inside []string, resolvectl string) {
	t.Helper()
	tools, err := filepath.Abs("../build/tools/resolved") // see scripts/test-prerequisites
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/lib/systemd/systemd-resolved"); err == nil {
		tools = "/"
	}
	if _, err := os.Stat(filepath.Join(tools, "lib/systemd/systemd-resolved")); err != nil {
		t.Fatal("systemd-resolved is missing: run scripts/test-prerequisites on Debian")
	}
	script := filepath.Join(t.TempDir(), "resolved.sh")
	if err := os.WriteFile(script, []byte(runResolved), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ip", "netns", "exec", d.ns, "sh", script, filepath.Join(tools, "lib/systemd/systemd-resolved"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := os.Create(filepath.Join(t.TempDir(), "resolved.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	inside = []string{"nsenter", "--target", strconv.Itoa(cmd.Process.Pid), "--mount", "--net"}
	resolvectl = filepath.Join(tools, "usr/bin/resolvectl")
	testwait.Until(t, "systemd-resolved runs", func() error {
		out, err := exec.CommandContext(t.Context(), inside[0], append(inside[1:], resolvectl, "status")...).CombinedOutput()
		if err != nil {
			text, _ := os.ReadFile(said.Name())
			return fmt.Errorf("%w: %s\n%s", err, out, text)
		}
		return nil
	})
	return inside, resolvectl
}

// runResolved runs in a mount namespace of its own.
const runResolved = `set -eu
mount -t tmpfs tmpfs /run
mkdir -p /run/dbus /run/systemd/resolve
for kind in passwd group; do cp /etc/$kind /run/$kind; done
if ! getent passwd systemd-resolve; then
	echo systemd-resolve:x:64111:64111::/:/usr/sbin/nologin >>/run/passwd
	echo systemd-resolve:x:64111: >>/run/group
	for kind in passwd group; do mount --bind /run/$kind /etc/$kind; done
fi
chown systemd-resolve:systemd-resolve /run/systemd/resolve
cat >/run/bus.conf <<END
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <policy context="default">
    <allow user="*"/> <allow own="*"/> <allow send_destination="*" eavesdrop="true"/> <allow receive_sender="*"/>
  </policy>
</busconfig>
END
dbus-daemon --nofork --config-file=/run/bus.conf &
until [ -S /run/dbus/system_bus_socket ]; do sleep 0.02; done
exec "$1"
`
