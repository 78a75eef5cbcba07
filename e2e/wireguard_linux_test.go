package e2e_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// device is a machine with a stock WireGuard, in a network namespace of its own: wireguard-go on a device of the kernel's, configured with wg from the
// file that coder devices add wrote.
type device struct {
	t    *testing.T
	ns   string
	near string // the address at which it reaches the test's own namespace
}

// newDevice makes the namespace, with a wire to the test's. Tests that run at the same time have different names.
func newDevice(t *testing.T, name string) *device {
	t.Helper()
	asRoot(t)
	wire := subnet()
	d := &device{t, fmt.Sprint(name, os.Getpid()), wire + "1"}
	mustRun(t, "ip", "netns", "add", d.ns)
	t.Cleanup(func() { exec.Command("ip", "netns", "del", d.ns).Run() })
	mustRun(t, "ip", "link", "add", d.ns, "type", "veth", "peer", "name", "eth0", "netns", d.ns)
	t.Cleanup(func() { exec.Command("ip", "link", "del", d.ns).Run() })
	mustRun(t, "ip", "addr", "add", d.near+"/30", "dev", d.ns)
	mustRun(t, "ip", "link", "set", d.ns, "up")
	mustRun(t, "ip", "-n", d.ns, "link", "set", "lo", "up")
	mustRun(t, "ip", "-n", d.ns, "addr", "add", wire+"2/30", "dev", "eth0")
	mustRun(t, "ip", "-n", d.ns, "link", "set", "eth0", "up")
	return d
}

// up does what wg-quick does with a configuration.
func (d *device) up(config string) {
	d.t.Helper()
	text, err := os.ReadFile(config)
	if err != nil {
		d.t.Fatal(err)
	}
	value := func(key string) string {
		match := regexp.MustCompile(`(?m)^` + key + ` = (.*)$`).FindStringSubmatch(string(text))
		if match == nil {
			d.t.Fatalf("the configuration has no %s", key)
		}
		return match[1]
	}
	program := filepath.Join(d.t.TempDir(), "wireguard-go")
	mustRun(d.t, "go", "build", "-o", program, "golang.zx2c4.com/wireguard")
	log, err := os.Create(program + ".log")
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	wireguard := exec.Command("ip", "netns", "exec", d.ns, "env", "WG_PROCESS_FOREGROUND=1", program, "-f", d.ns)
	wireguard.Stdout, wireguard.Stderr = log, log
	if err := wireguard.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- wireguard.Wait() }()
	d.t.Cleanup(func() {
		_ = wireguard.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	// wg removes a socket that refuses it, as one does that was just made.
	testwait.Until(d.t, "the device exists", func() error {
		conn, err := net.Dial("unix", "/var/run/wireguard/"+d.ns+".sock")
		if err == nil {
			return conn.Close()
		}
		said, _ := os.ReadFile(log.Name())
		select {
		case status := <-ended:
			ended <- status
			d.t.Fatalf("wireguard-go has ended, %v: %s", status, said)
		default:
		}
		return fmt.Errorf("%w: %s", err, said)
	})
	stripped := filepath.Join(d.t.TempDir(), d.ns+".conf")
	only := regexp.MustCompile(`(?m)^(Address|DNS|MTU) = .*\n`).ReplaceAll(text, nil) // as wg-quick strip
	if err := os.WriteFile(stripped, only, 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.run("wg", "setconf", d.ns, stripped)
	mustRun(d.t, "ip", "-n", d.ns, "addr", "add", value("Address"), "dev", d.ns)
	mustRun(d.t, "ip", "-n", d.ns, "link", "set", d.ns, "mtu", value("MTU"), "up")
	mustRun(d.t, "ip", "-n", d.ns, "route", "add", value("AllowedIPs"), "dev", d.ns)
	// The resolver of programs that ip netns exec starts.
	d.resolver("nameserver " + value("DNS") + "\n")
}

// resolver sets the resolver configuration of the device's programs, and returns its file.
func (d *device) resolver(text string) (file string) {
	d.t.Helper()
	etc := filepath.Join("/etc/netns", d.ns)
	if err := os.MkdirAll(etc, 0o755); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { os.RemoveAll(etc) })
	file = filepath.Join(etc, "resolv.conf")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
	return file
}

// command returns a command that runs on the device.
func (d *device) command(args ...string) *exec.Cmd {
	return exec.CommandContext(d.t.Context(), "ip", append([]string{"netns", "exec", d.ns}, args...)...)
}

// run runs a program on the device that must succeed, and returns its output.
func (d *device) run(args ...string) string {
	d.t.Helper()
	out, stderr, err := output(d.command(args...))
	if err != nil {
		d.t.Fatalf("%q: %v\n%s%s", args, err, out, stderr)
	}
	return out
}

// TestWireGuard reaches a workspace from a device with a stock WireGuard: by name, over HTTP, UDP and SSH, with programs that know nothing of the
// mesh.
func TestWireGuard(t *testing.T) {
	t.Parallel()
	dev := newDevice(t, "wg")
	port := freePort()
	d := deploy(t, "--wireguard-address", ":"+port, "--wireguard-access-address", net.JoinHostPort(dev.near, port))
	d.coder("create", "dev", "-t", "process", "-y")
	config := filepath.Join(d.dir, "phone.conf")
	d.coder("devices", "add", "phone", "-o", config)
	if info, err := os.Stat(config); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the configuration has the mode %v, %v", info.Mode(), err)
	}
	dev.up(config)

	address := strings.TrimSpace(dev.run("dig", "+short", "AAAA", "dev.coder"))
	if !net.ParseIP(address).IsGlobalUnicast() {
		t.Fatalf("dev.coder has the address %q", address)
	}
	if name := dev.run("dig", "+short", "-x", address); name != "main.dev.ada.coder.\n" {
		t.Errorf("%s has the name %q", address, name)
	}
	if out := dev.run("dig", "AAAA", "other.coder"); !strings.Contains(out, "NXDOMAIN") {
		t.Errorf("other.coder has an address:\n%s", out)
	}

	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "you asked for %s", r.Host) }))
	t.Cleanup(web.Close)
	_, webPort, _ := net.SplitHostPort(web.Listener.Addr().String())
	if out := dev.run("curl", "-sS", "http://dev.coder:"+webPort); out != "you asked for dev.coder:"+webPort {
		t.Errorf("the page is %q", out)
	}
	if out, stderr, err := output(dev.command("curl", "-sS", "http://dev.coder:4")); err == nil || !strings.Contains(stderr, "Failed to connect") {
		t.Errorf("a port of the agent's own answers %q, %v: %s", out, err, stderr)
	}
	if out := dev.run("/usr/bin/python3", "-c", askUDP(t, "main.dev.ada.coder")); out != "datagram\n" {
		t.Errorf("UDP answers %q", out)
	}

	deviceSSH(t, d, dev) // speaks to the agent: the gateway carries ciphertext

	t.Run("restart", func(t *testing.T) {
		if err := d.end(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := d.start(); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the page is back", func() error {
			return dev.command("curl", "-sS", "--max-time", "10", "http://dev.coder:"+webPort).Run()
		})
	})
	t.Run("removed", func(t *testing.T) {
		d.coder("devices", "remove", "phone")
		if out, err := dev.command("curl", "-sS", "--max-time", "2", "http://["+address+"]:"+webPort).CombinedOutput(); err == nil {
			t.Errorf("a removed device gets %q", out)
		}
	})
}

// TestWireGuardAtRegion reaches a workspace from a device with a stock WireGuard through a region: by name, over HTTP, UDP and SSH. What stays open goes on
// while the server is gone, and the device while the region's proxy is replaced. It needs no gateway of the server.
func TestWireGuardAtRegion(t *testing.T) {
	t.Parallel()
	dev := newDevice(t, "wgr")
	d := deploy(t)
	d.coder("create", "dev", "-t", "process", "-y")
	port := freePort()
	eu := d.newRegion("eu", "--wireguard-address", ":"+port, "--wireguard-access-address", net.JoinHostPort(dev.near, port))
	if _, stderr, err := d.try("devices", "add", "phone"); err == nil || !strings.Contains(stderr, "no WireGuard gateway") {
		t.Errorf("a deployment without gateways: %v, %s", err, stderr)
	}
	kill := eu.start()
	config := filepath.Join(d.dir, "phone.conf")
	testwait.Until(t, "the device is added for the region", func() error {
		_, stderr, err := d.try("devices", "add", "phone", "--region", "eu", "-o", config)
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		return nil
	})
	if _, stderr, err := d.try("devices", "add", "tablet"); err == nil || !strings.Contains(stderr, "--region: eu") {
		t.Errorf("without a region: %v, %s", err, stderr)
	}
	if list := d.coder("devices", "list", "--column", "name,region"); !regexp.MustCompile(`(?m)^phone +eu`).MatchString(list) {
		t.Errorf("the devices are\n%s", list)
	}
	dev.up(config)

	address := strings.TrimSpace(dev.run("dig", "+short", "AAAA", "dev.coder"))
	if name := dev.run("dig", "+short", "-x", address); name != "main.dev.ada.coder.\n" {
		t.Errorf("%s has the name %q", address, name)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "you asked for %s", r.Host) }))
	t.Cleanup(web.Close)
	_, webPort, _ := net.SplitHostPort(web.Listener.Addr().String())
	page := "http://dev.coder:" + webPort
	if out := dev.run("curl", "-sS", page); out != "you asked for dev.coder:"+webPort {
		t.Errorf("the page is %q", out)
	}
	if out, stderr, err := output(dev.command("curl", "-sS", "http://dev.coder:4")); err == nil || !strings.Contains(stderr, "Failed to connect") {
		t.Errorf("a port of the agent's own answers %q, %v: %s", out, err, stderr)
	}
	if out := dev.run("/usr/bin/python3", "-c", askUDP(t, "main.dev.ada.coder")); out != "datagram\n" {
		t.Errorf("UDP answers %q", out)
	}
	if out := dev.run("ping", "-c", "3", "dev.coder"); !strings.Contains(out, "bytes from") {
		t.Errorf("the ping says\n%s", out)
	}
	known := filepath.Join(d.dir, "device_hosts")
	ssh := []string{"ssh", "-F", "none", "-o", "StrictHostKeyChecking=accept-new", "-o", "UserKnownHostsFile=" + known, "dev@dev.coder"}
	if out := dev.run(append(ssh, "echo $CODER_WORKSPACE_NAME")...); out != "dev\n" {
		t.Errorf("ssh answers %q", out)
	}

	t.Run("the server is gone", func(t *testing.T) { d.restartBeside(t, dev.command(append(ssh, "cat")...)) })
	t.Run("the proxy is replaced", func(t *testing.T) {
		kill()
		eu.start()
		testwait.Until(t, "the page is back", func() error { return dev.command("curl", "-sS", "--max-time", "10", page).Run() })
	})
	t.Run("removed", func(t *testing.T) {
		d.coder("devices", "remove", "phone")
		testwait.Until(t, "the device is cut off", func() error {
			out, err := dev.command("curl", "-sS", "--max-time", "2", "http://["+address+"]:"+webPort).CombinedOutput()
			return testwait.Unless(err != nil, "it gets %q", out)
		})
	})
}

// restartBeside kills the server and starts it again, while a session returns each line that it gets.
func (d *deployment) restartBeside(t *testing.T, session *exec.Cmd) {
	t.Helper()
	in, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	echo := func(text string) {
		t.Helper()
		if _, err := fmt.Fprintln(in, text); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != text+"\n" {
			t.Fatalf("%q, %v, want %q", line, err, text)
		}
	}
	echo("before")
	if err := d.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	echo("without a server")
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	echo("after")
	in.Close()
	if err := session.Wait(); err != nil {
		t.Error(err)
	}
}

// askUDP starts a service that echoes datagrams, and returns a program in Python that asks it by a host's name.
func askUDP(t *testing.T, host string) string {
	t.Helper()
	datagrams, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { datagrams.Close() })
	go func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := datagrams.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = datagrams.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	return fmt.Sprintf(`import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.settimeout(1)
s.connect(("%s", %d))
for _ in range(60):
    s.send(b"datagram")
    try: print(s.recv(100).decode())
    except TimeoutError: continue
    break`, host, datagrams.LocalAddr().(*net.UDPAddr).Port)
}

// deviceSSH does what people do over SSH with stock clients on the device, by the workspace's name.
func deviceSSH(t *testing.T, d *deployment, dev *device) {
	ssh := &shell{d, filepath.Join(d.dir, "device_config")}
	text := fmt.Sprintf("Host coder.dev\n\tHostName dev.coder\n\tProxyCommand ip netns exec %s nc %%h %%p\n\tStrictHostKeyChecking accept-new\n\tUserKnownHostsFile %s\n\tLogLevel ERROR\n",
		dev.ns, filepath.Join(d.dir, "device_hosts"))
	if err := os.WriteFile(ssh.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *shell){
		"status": sshStatus, "rsync": sshRsync, "git": sshGit, "forwards": sshForwards, "agent": sshAgent,
	} {
		t.Run(name, func(t *testing.T) { test(t, ssh) })
	}
	t.Run("clients", func(t *testing.T) { deviceClients(t, d, dev) })
}

// deviceClients reaches the workspace over SSH with PuTTY, Dropbear and paramiko.
func deviceClients(t *testing.T, d *deployment, dev *device) {
	home := filepath.Join(d.dir, "home-device")
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	scanned := dev.run("ssh-keyscan", "-t", "ed25519", "dev.coder")
	client := filepath.Join(home, "client.py")
	for path, text := range map[string]string{
		filepath.Join(home, ".ssh/known_hosts"): scanned,
		client: `import sys, paramiko
c = paramiko.SSHClient()
c.load_host_keys(sys.argv[1])
try: c.connect("dev.coder", username="dev", look_for_keys=False, allow_agent=False)
except paramiko.SSHException: c.get_transport().auth_none("dev")
_, out, _ = c.exec_command("echo $CODER_WORKSPACE_NAME; exit 7")
print(out.read().decode().strip(), out.channel.recv_exit_status())
`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := "echo $CODER_WORKSPACE_NAME; exit 7"
	fingerprint := strings.Fields(mustRun(t, "ssh-keygen", "-lf", filepath.Join(home, ".ssh/known_hosts")))[1]
	for name, c := range map[string]struct {
		args   []string
		want   string
		status int
	}{
		"plink":    {[]string{"plink", "-batch", "-ssh", "-T", "-hostkey", fingerprint, "-l", "dev", "dev.coder", command}, "dev\n", 7},
		"dbclient": {[]string{"env", "HOME=" + home, "dbclient", "-T", "dev@dev.coder", command}, "dev\n", 7},
		"paramiko": {[]string{"/usr/bin/python3", client, filepath.Join(home, ".ssh/known_hosts")}, "dev 7\n", 0},
	} {
		if out, stderr, err := output(dev.command(c.args...)); out != c.want || status(err) != c.status {
			t.Errorf("%s: %q, %v\n%s", name, out, err, stderr)
		}
	}
	// psftp copies a file both ways.
	local, back := filepath.Join(home, "local"), filepath.Join(home, "back")
	if err := os.WriteFile(local, []byte("over the mesh"), 0o600); err != nil {
		t.Fatal(err)
	}
	batch := filepath.Join(home, "batch")
	if err := os.WriteFile(batch, []byte("put "+local+" from-psftp\nget from-psftp "+back+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dev.run("psftp", "-batch", "-hostkey", fingerprint, "-l", "dev", "-b", batch, "dev.coder")
	if got, err := os.ReadFile(back); err != nil || string(got) != "over the mesh" {
		t.Errorf("psftp brings back %q, %v", got, err)
	}
}
