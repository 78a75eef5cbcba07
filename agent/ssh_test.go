package agent_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestStockSSH: OpenSSH reaches the sessions of an agent on the mesh, with the host key that the server gave the agent, and they count as those
// of `coder ssh` do.
func TestStockSSH(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seed := bytes.Repeat([]byte{7}, ed25519.SeedSize)
	w.manifest.SshHostKey = seed
	w.run(t)
	signer, err := gossh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(w.ports[meshport.SSH].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(t.TempDir(), "known_hosts")
	line := fmt.Sprintf("dev.coder %s", gossh.MarshalAuthorizedKey(signer.PublicKey()))
	if err := os.WriteFile(known, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	options := []string{
		"-F", "none", "-o", "Port=" + port, "-o", "HostName=127.0.0.1", "-o", "HostKeyAlias=dev.coder", "-o", "UserKnownHostsFile=" + known,
		"-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "IdentityFile=none", "-o", "LogLevel=ERROR",
	}
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append(options[:len(options):len(options)], args...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s %q: %v\n%s", program, args, err, &stderr)
		}
		return strings.TrimSpace(string(out))
	}
	if got := run("ssh", "dev", `echo "$CODER_WORKSPACE_NAME"`); got != "dev" {
		t.Errorf("the workspace is called %q", got)
	}
	if got := run("ssh", "-tt", "dev", "test -t 0 && echo terminal"); got != "terminal" {
		t.Errorf("with a terminal: %q", got)
	}
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	if err := os.WriteFile(from, data, 0o600); err != nil {
		t.Fatal(err)
	}
	run("scp", "-q", from, "dev:"+to)
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, data) {
		t.Errorf("scp: %d bytes of %d, %v", len(got), len(data), err)
	}
	open := exec.CommandContext(t.Context(), "ssh", append(options[:len(options):len(options)], "dev", "cat")...)
	stdin, err := open.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := open.Start(); err != nil {
		t.Fatal(err)
	}
	w.until(t, "the session is reported", func() bool {
		return slices.ContainsFunc(w.stats, func(r *agentpb.StatsRequest) bool { return r.GetSsh() == 1 })
	})
	stdin.Close()
	if err := open.Wait(); err != nil {
		t.Errorf("the open session: %v", err)
	}

	// Another key is another host.
	other := strings.Replace(line, "AAAAC3NzaC1lZDI1NTE5AAAAI", "AAAAC3NzaC1lZDI1NTE5AAAAJ", 1)
	if err := os.WriteFile(known, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "ssh", append(options, "dev", "true")...).CombinedOutput(); err == nil {
		t.Errorf("with another host key: %s", out)
	}
}

// TestHostCertificate: OpenSSH knows an agent by the authority that has certified its host key, for the certificate's names only.
func TestHostCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seed := bytes.Repeat([]byte{7}, ed25519.SeedSize)
	var signers [2]gossh.Signer
	for i, from := range [][]byte{seed, bytes.Repeat([]byte{8}, ed25519.SeedSize)} {
		var err error
		if signers[i], err = gossh.NewSignerFromKey(ed25519.NewKeyFromSeed(from)); err != nil {
			t.Fatal(err)
		}
	}
	host, authority := signers[0], signers[1]
	cert := &gossh.Certificate{CertType: gossh.HostCert, Key: host.PublicKey(), ValidPrincipals: []string{"dev.coder"}, ValidBefore: gossh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		t.Fatal(err)
	}
	w.manifest.SshHostKey, w.manifest.SshHostCertificate = seed, cert.Marshal()
	w.run(t)
	_, port, err := net.SplitHostPort(w.ports[meshport.SSH].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	connect := func(name, line string) error {
		t.Helper()
		known := filepath.Join(t.TempDir(), "known_hosts")
		if err := os.WriteFile(known, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.CommandContext(t.Context(), "ssh", "-F", "none", "-o", "Port="+port, "-o", "HostName=127.0.0.1", "-o", "HostKeyAlias="+name, "-o", "UserKnownHostsFile="+known,
			"-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "IdentityFile=none", "-o", "LogLevel=ERROR", "dev", "true").Run()
	}
	trusted := fmt.Sprintf("@cert-authority *.coder %s", gossh.MarshalAuthorizedKey(authority.PublicKey()))
	if err := connect("dev.coder", trusted); err != nil {
		t.Error(err)
	}
	if err := connect("dev.coder", fmt.Sprintf("dev.coder %s", gossh.MarshalAuthorizedKey(host.PublicKey()))); err != nil {
		t.Errorf("a client that knows the key: %v", err)
	}
	if err := connect("other.coder", trusted); err == nil {
		t.Error("the certificate is one for another name")
	}
	if err := connect("dev.coder", fmt.Sprintf("@cert-authority *.coder %s", gossh.MarshalAuthorizedKey(host.PublicKey()))); err == nil {
		t.Error("a client that trusts another authority connects")
	}
}

// TestStockSSHWaits: a stock client waits for the start scripts that block logins, and is told so.
func TestStockSSHWaits(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	blocking := newScript("mkfifo "+fifo+"; echo ready >&2; cat "+fifo, func(s *agentpb.Script) { s.StartBlocksLogin = true })
	w := newWorld(t, blocking)
	w.manifest.SshHostKey = bytes.Repeat([]byte{7}, ed25519.SeedSize)
	w.run(t)
	w.until(t, "the script runs", func() bool { return len(w.lines[string(blocking.GetLogSourceId())]) > 0 })
	client, err := gossh.Dial("tcp", w.ports[meshport.SSH].Addr().String(), &gossh.ClientConfig{HostKeyCallback: gossh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := session.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Run("true") }()
	want := "Waiting for the start scripts"
	text := make([]byte, len(want))
	if _, err := io.ReadFull(stderr, text); err != nil || string(text) != want {
		t.Fatalf("the client is told %q, %v", text, err)
	}
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := testwait.For(t, "the session ends", ended); err != nil {
		t.Error(err)
	}
}

// TestNoHostKey: without a host key there is no SSH.
func TestNoHostKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t)
	w.until(t, "the port is closed", func() bool {
		conn, err := net.Dial("tcp", w.ports[meshport.SSH].Addr().String())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}
