package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testport"
)

// gatewayClient is what a program that uses paramiko does with the gateway.
const gatewayClient = `import sys, paramiko
c = paramiko.SSHClient()
c.load_host_keys(sys.argv[1])
c.connect("127.0.0.1", port=int(sys.argv[2]), username="dev", key_filename=sys.argv[3], look_for_keys=False, allow_agent=False)
_, out, _ = c.exec_command("echo $CODER_WORKSPACE_NAME; exit 7")
print(out.read().decode().strip(), out.channel.recv_exit_status())
with c.open_sftp() as sftp:
    sftp.put(sys.argv[1], "paramiko-put")
    print(sftp.stat("paramiko-put").st_size > 0)
`

// TestSSHGateway does what people do over SSH with stock clients, through the gateway, and jumping through it to the workspace's own SSH server.
func TestSSHGateway(t *testing.T) {
	t.Parallel()
	addr := testport.Addr()
	d := deploy(t, "--ssh-address", addr)
	d.coder("create", "dev", "-t", "process", "-y")
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	var gateway sdk.SSHGateway
	d.get("/api/v2/deployment/ssh-gateway", &gateway)
	if gateway.Address != addr {
		t.Errorf("users are shown %q, want %q", gateway.Address, addr)
	}
	known := filepath.Join(d.dir, "gateway_hosts")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(known, fmt.Sprintf("[127.0.0.1]:%s %s\n", port, gateway.HostKey))
	key := filepath.Join(d.dir, "laptop")
	mustRun(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "laptop", "-f", key)
	d.coder("ssh-key", "add", key+".pub")

	config := filepath.Join(d.dir, "gateway_config")
	common := fmt.Sprintf("\tUserKnownHostsFile %s\n\tIdentityFile %s\n\tIdentitiesOnly yes\n\tLogLevel ERROR\n", known, key)
	write(config, fmt.Sprintf("Host gateway\n\tHostName 127.0.0.1\n\tPort %s\n\tStrictHostKeyChecking yes\n%sHost coder.dev\n\tHostName 127.0.0.1\n\tPort %s\n\tUser dev\n\tStrictHostKeyChecking yes\n%s",
		port, common, port, common))
	jump := filepath.Join(d.dir, "jump_config")
	write(jump, fmt.Sprintf("Host gateway\n\tHostName 127.0.0.1\n\tPort %s\n\tStrictHostKeyChecking yes\n%sHost coder.dev\n\tHostName dev.coder\n\tProxyJump gateway\n\tStrictHostKeyChecking accept-new\n%s", port, common, common))
	for way, path := range map[string]string{"gateway": config, "jump": jump} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := &shell{d, path}
			for name, test := range map[string]func(*testing.T, *shell){
				"status": sshStatus, "rsync": sshRsync, "forwards": sshForwards, "agent": sshAgent, "x11": sshX11,
			} {
				t.Run(name, func(t *testing.T) { test(t, s) })
			}
			if way == "gateway" { // both ways would push to one repository
				t.Run("git", func(t *testing.T) { sshGit(t, s) })
			}
			if out := s.ssh(t, "-tt", "tty"); !strings.HasPrefix(out, "/dev/") {
				t.Errorf("with a terminal: %q", out)
			}
		})
	}
	t.Run("certificates", func(t *testing.T) {
		t.Parallel()
		gatewayCertificates(t, d, port)
	})
	t.Run("entries", func(t *testing.T) {
		t.Parallel()
		gatewayEntries(t, d, key)
	})
	t.Run("clients", func(t *testing.T) {
		t.Parallel()
		gatewayClients(t, d, known, port, key)
	})
}

// gatewayCertificates reaches the workspace with OpenSSH, which knows hosts by the host CA only, and is known by a certificate of the user CA only.
func gatewayCertificates(t *testing.T, d *deployment, port string) {
	dir := filepath.Join(d.dir, "certificates")
	key, config := filepath.Join(dir, "key"), filepath.Join(dir, "config")
	d.coder("ssh-cert", "--key", key, "--ttl", "1h")
	d.coder("config-ssh", "--ssh-config-file", config, "--hostname-suffix", "coder", "-y")
	known := filepath.Join(dir, "known_hosts")
	section, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	block := fmt.Sprintf("\tHostName 127.0.0.1\n\tPort %s\n\tStrictHostKeyChecking yes\n\tUserKnownHostsFile %s\n\tIdentityFile %s\n\tIdentitiesOnly yes\n\tLogLevel ERROR\n", port, known, key)
	for path, text := range map[string]string{known: d.coder("ssh-ca", "show"), config: "Host gateway\n" + block + "Host direct\n\tUser dev\n" + block + string(section)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (stdout, stderr string, code int) {
		cmd := exec.CommandContext(t.Context(), "ssh", append([]string{"-F", config, "-o", "BatchMode=yes"}, args...)...)
		out, stderr, err := output(cmd)
		return out, stderr, status(err)
	}
	const command = "echo $CODER_WORKSPACE_NAME; exit 7"
	for name, args := range map[string][]string{
		"through the gateway": {"direct", command},
		"a jump":              {"-J", "gateway", "-o", "User=x", "dev.coder", command},
		"a jump by the owner's name, with the section's own file of the host CA": {"-J", "gateway", "main.dev.ada.coder", command},
	} {
		if out, stderr, code := run(args...); out != "dev\n" || code != 7 {
			t.Errorf("%s: %q, %d\n%s", name, out, code, stderr)
		}
	}
	// Hosts of another CA are refused, and so is the key without its certificate.
	stranger := filepath.Join(dir, "stranger")
	mustRun(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger)
	public, err := os.ReadFile(stranger + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "foreign_hosts")
	if err := os.WriteFile(foreign, append([]byte("@cert-authority * "), public...), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := run("-o", "UserKnownHostsFile="+foreign, "direct", command); code != 255 || !strings.Contains(stderr, "Host key verification failed") {
		t.Errorf("another host CA: %q, %d\n%s", out, code, stderr)
	}
	// A certificate that another CA has signed for the same key is none.
	mustRun(t, "ssh-keygen", "-q", "-s", stranger, "-I", "session:x", "-n", "root,dev", key+".pub")
	if out, stderr, code := run("direct", command); code != 255 || !strings.Contains(stderr, "Permission denied (publickey)") {
		t.Errorf("another user CA: %q, %d\n%s", out, code, stderr)
	}
}

// gatewayEntries does what editors do with the entries of config-ssh --gateway: run a command, and copy files, without our program.
func gatewayEntries(t *testing.T, d *deployment, key string) {
	config := filepath.Join(d.dir, "entries", "config")
	d.coder("config-ssh", "--gateway", "--ssh-config-file", config, "--hostname-suffix", "coder", "-o", "IdentityFile="+key, "-o", "IdentitiesOnly=yes", "-y")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "\tProxyCommand ") {
		t.Errorf("the entries need more than OpenSSH:\n%s", text)
	}
	for _, host := range []string{"coder.dev", "dev.coder"} {
		cmd := exec.CommandContext(t.Context(), "ssh", "-F", config, "-o", "BatchMode=yes", host, "echo $CODER_WORKSPACE_NAME; exit 7")
		if out, stderr, err := output(cmd); out != "dev\n" || status(err) != 7 {
			t.Errorf("%s: %q, %v\n%s", host, out, err, stderr)
		}
	}
	copied := filepath.Join(d.dir, "entries", "copy")
	for _, args := range [][]string{{config, "coder.dev:entries-put"}, {"coder.dev:entries-put", copied}} {
		mustRun(t, "scp", append([]string{"-q", "-F", config, "-o", "BatchMode=yes"}, args...)...)
	}
	if got, err := os.ReadFile(copied); err != nil || string(got) != string(text) {
		t.Errorf("copied there and back: %q, %v", got, err)
	}
	// The entries know the gateway by its CA, and no other host.
	if err := os.WriteFile(filepath.Join(d.dir, "entries", "coder_gateway_hosts"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "ssh", "-F", config, "-o", "BatchMode=yes", "coder.dev", "true")
	if _, stderr, err := output(cmd); status(err) != 255 || !strings.Contains(stderr, "Host key verification failed") {
		t.Errorf("a gateway without the CA's line: %v\n%s", err, stderr)
	}
}

// gatewayClients reaches the workspace with PuTTY, Dropbear and paramiko, each with a key that its own tool has made.
func gatewayClients(t *testing.T, d *deployment, known, port, key string) {
	home := filepath.Join(d.dir, "home-gateway")
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	var gateway sdk.SSHGateway
	d.get("/api/v2/deployment/ssh-gateway", &gateway)
	for path, text := range map[string]string{".ssh/known_hosts": "127.0.0.1 " + gateway.HostKey + "\n", "client.py": gatewayClient, "empty": ""} {
		if err := os.WriteFile(filepath.Join(home, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ppk, public := filepath.Join(home, "key.ppk"), filepath.Join(home, "putty.pub")
	mustRun(t, "puttygen", "-q", "-t", "ed25519", "-o", ppk, "--new-passphrase", filepath.Join(home, "empty"))
	mustRun(t, "puttygen", ppk, "-O", "public-openssh", "-o", public)
	d.coder("ssh-key", "add", public, "--name", "putty")
	small := filepath.Join(home, "dropbear")
	for line := range strings.Lines(mustRun(t, "dropbearkey", "-t", "ed25519", "-f", small)) {
		if strings.HasPrefix(line, "ssh-ed25519 ") {
			if err := os.WriteFile(small+".pub", []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.coder("ssh-key", "add", small+".pub", "--name", "dropbear")

	command := "echo $CODER_WORKSPACE_NAME; exit 7"
	for name, c := range map[string]struct {
		args   []string
		want   string
		status int
	}{
		"plink":    {[]string{"plink", "-batch", "-ssh", "-T", "-P", port, "-i", ppk, "-hostkey", gateway.Fingerprint, "-l", "dev", "127.0.0.1", command}, "dev\n", 7},
		"dbclient": {[]string{"env", "HOME=" + home, "dbclient", "-T", "-p", port, "-i", small, "dev@127.0.0.1", command}, "dev\n", 7},
		"paramiko": {[]string{"/usr/bin/python3", filepath.Join(home, "client.py"), known, port, key}, "dev 7\nTrue\n", 0},
	} {
		cmd := exec.CommandContext(t.Context(), c.args[0], c.args[1:]...)
		cmd.Dir = home
		if out, stderr, err := output(cmd); out != c.want || status(err) != c.status {
			t.Errorf("%s: %q, %v\n%s", name, out, err, stderr)
		}
	}
	// A stranger's key opens nothing, and is told nothing.
	stranger := filepath.Join(home, "stranger")
	mustRun(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger)
	cmd := exec.CommandContext(t.Context(), "ssh", "-F", "none", "-p", port, "-i", stranger, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile="+known, "dev@127.0.0.1", "true")
	if _, stderr, err := output(cmd); status(err) != 255 || strings.TrimSpace(stderr) != "dev@127.0.0.1: Permission denied (publickey)." {
		t.Errorf("a stranger: %v, %q", err, stderr)
	}
}

// mustRun runs a program that must succeed, and returns its output.
func mustRun(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, stderr, err := output(exec.CommandContext(t.Context(), program, args...))
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, stderr)
	}
	return out
}
