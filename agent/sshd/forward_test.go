//go:build linux

package sshd_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// upper answers each connection, once the peer has ended its sending, with the received text in capitals: this needs half-close to work.
func upper(t testing.TB, network, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				data, err := io.ReadAll(conn)
				if err == nil {
					_, _ = conn.Write(bytes.ToUpper(data))
				}
			}()
		}
	}()
	return l
}

type halfConn interface {
	net.Conn
	CloseWrite() error
}

func askUpper(t testing.TB, network, addr string) {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	want := strings.Repeat("HELLO ", 100000)
	go func() {
		_, _ = io.WriteString(conn, strings.ToLower(want))
		_ = conn.(halfConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != want {
		t.Errorf("%s %s: got %d bytes, %v; want %d", network, addr, len(got), err, len(want))
	}
}

// hold runs an ssh client with forwards until the test ends, and returns once they are set up, because ssh then runs its command.
func hold(t *testing.T, h *host, flags ...string) {
	t.Helper()
	// The test's own context ends before its cleanups run.
	cmd := h.ssh(context.Background(), append(flags, "-o", "ExitOnForwardFailure=yes"), "echo ready; cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("ssh: %v", err)
		}
	})
	if err != nil || line != "ready\n" {
		t.Fatalf("ssh %v: got %q, %v, stderr %q", flags, line, err, stderr.String())
	}
}

func TestForwards(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	target := upper(t, "tcp", "127.0.0.1:0").Addr().String()
	socket := upper(t, "unix", filepath.Join(h.dir, "target.sock")).Addr().String()
	local, remote, dynamic := testport.Free(), testport.Free(), testport.Free()
	localSock, remoteSock := filepath.Join(h.dir, "l.sock"), filepath.Join(h.home, "r.sock")
	hold(t, h,
		"-L", fmt.Sprintf("127.0.0.1:%d:%s", local, target), "-R", fmt.Sprintf("%d:%s", remote, target),
		"-D", fmt.Sprintf("127.0.0.1:%d", dynamic),
		"-L", localSock+":"+socket, "-R", remoteSock+":"+target)
	askUpper(t, "tcp", "127.0.0.1:"+strconv.Itoa(local))
	askUpper(t, "tcp", "127.0.0.1:"+strconv.Itoa(remote))
	askUpper(t, "unix", localSock)
	askUpper(t, "unix", remoteSock)
	if info, err := os.Stat(remoteSock); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("remote socket: %v, %v; want mode 0600", info, err)
	}
	curl := exec.CommandContext(t.Context(), "curl", "--version")
	if curl.Run() == nil {
		out, err := exec.CommandContext(t.Context(), "curl", "-s", "-m", "10", "--http0.9", "-x", "socks5h://127.0.0.1:"+strconv.Itoa(dynamic),
			"--upload-file", "/dev/null", "http://127.0.0.1:1/").CombinedOutput()
		if err == nil {
			t.Errorf("request to a closed port through -D: got %q, want an error", out)
		}
	}
	askSOCKS(t, dynamic, target)
}

// askSOCKS connects to target through -D with SOCKS4.
func askSOCKS(t testing.TB, port int, target string) {
	t.Helper()
	conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	addr, err := net.ResolveTCPAddr("tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	request := append([]byte{4, 1, byte(addr.Port >> 8), byte(addr.Port)}, addr.IP.To4()...)
	if _, err := conn.Write(append(request, 0)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 8)
	if _, err := io.ReadFull(conn, answer); err != nil || answer[1] != 90 {
		t.Fatalf("socks: got %v, %v, want it granted", answer, err)
	}
	_, _ = io.WriteString(conn, "abc")
	_ = conn.(halfConn).CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "ABC" {
		t.Errorf("through -D: got %q, %v, want ABC", got, err)
	}
}

func TestRemoteForwardEndsWithConnection(t *testing.T) {
	t.Parallel()
	client := start(t, nil).dial(t)
	l, err := client.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil { // cancel-tcpip-forward
		t.Fatal(err)
	}
	// A process that another test is starting has a copy of the listener until it executes its program.
	testwait.Until(t, "the port is free after a cancel", func() error {
		again, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		return again.Close()
	})
}

func TestListenersAreBounded(t *testing.T) {
	t.Parallel()
	client := start(t, nil).dial(t)
	for n := range 100 {
		ok, _, err := client.SendRequest("tcpip-forward", true, gossh.Marshal(struct {
			Host string
			Port uint32
		}{"localhost", 0}))
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			if n != 64 {
				t.Errorf("refused after %d listeners, want 64", n)
			}
			return
		}
	}
	t.Error("a connection got 100 listeners")
}

func TestChannelsAreBounded(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	conn := h.conn(t)
	for n := range 400 {
		_, err := conn.OpenConfirmed("session", nil)
		if err == nil {
			continue
		}
		if n != 256 {
			t.Errorf("refused after %d channels (%v), want 256", n, err)
		}
		break
	}
	// With SSH, the session opens at once, and the refusal arrives as text.
	client := h.dial(t)
	for range 256 {
		session(t, client)
	}
	channel, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(requests)
	if text, err := io.ReadAll(channel.Stderr()); err != nil || !strings.Contains(string(text), "too many channels") {
		t.Errorf("session 257: got %q, %v; want a refusal", text, err)
	}
}

// TestMalformedRequests: the server refuses a hostile client's requests; none breaks the connection, which still works afterwards.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	client := start(t, nil).dial(t)
	junk := []byte{0xff, 0xff, 0xff, 0xff, 1}
	for _, name := range []string{"tcpip-forward", "cancel-tcpip-forward", "streamlocal-forward@openssh.com",
		"cancel-streamlocal-forward@openssh.com", "no-such-request"} {
		if ok, _, err := client.SendRequest(name, true, junk); ok || err != nil {
			t.Errorf("%s: got %v, %v, want a refusal", name, ok, err)
		}
	}
	for _, kind := range []string{"direct-tcpip", "direct-streamlocal@openssh.com", "no-such-channel", "x11"} {
		if _, _, err := client.OpenChannel(kind, junk); err == nil {
			t.Errorf("channel %s with junk was opened", kind)
		}
	}
	channel, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(requests)
	for _, name := range []string{"env", "pty-req", "window-change", "signal", "exec", "subsystem", "x11-req", "junk"} {
		if ok, err := channel.SendRequest(name, true, junk); ok || err != nil {
			t.Errorf("%s: got %v, %v, want a refusal", name, ok, err)
		}
	}
	channel.Close()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := session.Output("echo alive"); err != nil || string(out) != "alive\n" {
		t.Errorf("afterwards: got %q, %v", out, err)
	}
}

// TestRefusalsReachOpenSSH checks that OpenSSH learns what the workspace refuses in time to act on it.
func TestRefusalsReachOpenSSH(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	taken := upper(t, "tcp", "127.0.0.1:0").Addr().(*net.TCPAddr).Port
	closed := testport.Addr()
	for name, test := range map[string]struct {
		flags   []string
		command []string
		want    string
	}{
		"subsystem": {flags: []string{"-s"}, command: []string{"nonsense"}, want: "subsystem request failed"},
		"-W":        {flags: []string{"-W", closed}, want: "stdio forwarding failed"},
		"-R": {flags: []string{"-o", "ExitOnForwardFailure=yes", "-R", fmt.Sprintf("%d:%s", taken, closed)}, command: []string{"echo started"},
			want: "remote port forwarding failed"},
		"-R of a socket": {flags: []string{"-o", "ExitOnForwardFailure=yes", "-R", "/no/such/folder/socket:" + closed}, command: []string{"echo started"},
			want: "remote port forwarding failed"},
	} {
		stdout, stderr, status := run(t, h.ssh(t.Context(), test.flags, test.command...))
		if status != 255 || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: got status %d, %q, %q; want 255 and %q", name, status, stdout, stderr, test.want)
		}
	}
}

// TestStandardForward checks that -W, which ProxyJump uses, carries bytes both ways and ends with either.
func TestStandardForward(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	cmd := h.ssh(t.Context(), []string{"-W", upper(t, "tcp", "127.0.0.1:0").Addr().String()})
	want := strings.Repeat("HELLO ", 100000)
	cmd.Stdin = strings.NewReader(strings.ToLower(want))
	if stdout, stderr, status := run(t, cmd); status != 0 || stdout != want {
		t.Errorf("got status %d, %d bytes, %q; want %d bytes", status, len(stdout), stderr, len(want))
	}
}

// TestControlMaster: sessions and forwards share one connection; the server hangs up a session whose client leaves, and the others
// continue.
func TestControlMaster(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	control := filepath.Join(h.dir, "control")
	hold(t, h, "-M", "-S", control)
	shared := []string{"-S", control, "-o", "ControlMaster=no", "-o", "ProxyCommand=false"}
	if stdout, stderr, status := run(t, h.ssh(t.Context(), shared, "echo shared; exit 3")); status != 3 || stdout != "shared\n" {
		t.Fatalf("a shared session: got status %d, %q, %q", status, stdout, stderr)
	}
	left := h.ssh(t.Context(), shared, "echo $$; exec sleep 3600")
	stdout, err := left.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	left.Process.Kill()
	_ = left.Wait() // it was killed
	waitGone(t, pid)
	if stdout, stderr, status := run(t, h.ssh(t.Context(), shared, "echo goes on")); status != 0 || stdout != "goes on\n" {
		t.Errorf("after a session that was left: got status %d, %q, %q", status, stdout, stderr)
	}
}

func TestAgentForwarding(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	keyring := agent.NewKeyring()
	if err := keyring.Add(agent.AddedKey{PrivateKey: newKey(t), Comment: "laptop key"}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.dir, "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _ = agent.ServeAgent(keyring, conn) }()
		}
	}()
	control := filepath.Join(h.dir, "control")
	inSession := func(command string) []string {
		t.Helper()
		cmd := h.ssh(t.Context(), []string{"-A", "-o", "IdentityAgent=" + path, "-o", "ControlMaster=auto", "-o", "ControlPersist=yes", "-S", control}, command)
		// The first value of an option takes effect, so the harness's own must not come first.
		cmd.Args = remove(cmd.Args, "IdentityAgent=none")
		stdout, stderr, status := run(t, cmd)
		if status != 0 {
			t.Fatalf("%s: got status %d, %q, %q", command, status, stdout, stderr)
		}
		return strings.Split(strings.TrimSpace(stdout), "\n")
	}
	lines := inSession("ssh-add -l; ls -ld ${SSH_AUTH_SOCK%/*}; echo $SSH_AUTH_SOCK")
	if len(lines) != 3 || !strings.Contains(lines[0], "laptop key") || !strings.HasPrefix(lines[1], "drwx------") {
		t.Fatalf("got %q, want the key and a private folder", lines)
	}
	// What outlives its session still has the socket, which lives as long as the connection.
	if got := inSession("SSH_AUTH_SOCK=" + lines[2] + " ssh-add -l; echo $SSH_AUTH_SOCK"); len(got) != 2 || !strings.Contains(got[0], "laptop key") || got[1] != lines[2] {
		t.Errorf("after the session: got %q", got)
	}
	if _, stderr, status := run(t, h.ssh(t.Context(), []string{"-S", control, "-O", "exit"})); status != 0 {
		t.Fatalf("end the connection: %s", stderr)
	}
	h.server.Close() // waits for the connection
	if _, err := os.Stat(lines[2]); !os.IsNotExist(err) {
		t.Errorf("agent socket after the connection: %v, want it gone", err)
	}
}

func remove(args []string, value string) []string {
	for i, a := range args {
		if a == value {
			return append(append([]string{}, args[:i-1]...), args[i+1:]...)
		}
	}
	return args
}

func TestSFTP(t *testing.T) {
	h := start(t, nil)
	t.Chdir(h.home) // as an agent does that has the process to itself
	data := make([]byte, 20<<20)
	rand.Read(data)
	src, back := filepath.Join(h.dir, "src"), filepath.Join(h.dir, "back")
	if err := os.WriteFile(src, data, 0o640); err != nil {
		t.Fatal(err)
	}
	batch := filepath.Join(h.dir, "batch")
	script := fmt.Sprintf("put -p %s up\nmkdir d\nrename up d/moved\nln -s moved d/link\nchmod 600 d/moved\nls -l d\nget d/link %s\nrm d/link\n", src, back)
	if err := os.WriteFile(batch, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sftp", append(h.options(), "-b", batch, "127.0.0.1")...)
	stdout, stderr, status := run(t, cmd)
	if status != 0 {
		t.Fatalf("sftp: status %d, %s%s", status, stdout, stderr)
	}
	for _, path := range []string{filepath.Join(h.home, "d", "moved"), back} {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v; want what was sent", path, len(got), err)
		}
	}
	scp := exec.CommandContext(t.Context(), "scp", append(append([]string{"-r"}, h.options()...), "127.0.0.1:d", h.dir+"/copy")...)
	if stdout, stderr, status := run(t, scp); status != 0 {
		t.Fatalf("scp: status %d, %s%s", status, stdout, stderr)
	}
	if got, err := os.ReadFile(filepath.Join(h.dir, "copy", "moved")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("scp -r: %d bytes, %v; want what was sent", len(got), err)
	}
}

// TestSFTPExtensions shows what OpenSSH's clients do with the protocol's extensions.
func TestSFTPExtensions(t *testing.T) {
	h := start(t, nil)
	t.Chdir(h.home)
	data := make([]byte, 1<<20+1)
	rand.Read(data)
	for name, content := range map[string][]byte{"a": data, "empty": nil} {
		if err := os.WriteFile(filepath.Join(h.home, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sftp := func(script string) (stdout, stderr string, status int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sftp", append(h.options(), "-b", "-", "127.0.0.1")...)
		cmd.Stdin = strings.NewReader(script)
		return run(t, cmd)
	}
	if stdout, stderr, status := sftp("mkdir d\ncp a d/b\ncp empty c\nln a hard\nrename c moved\ndf\n"); status != 0 {
		t.Fatalf("sftp: status %d, %s%s", status, stdout, stderr)
	}
	for name, want := range map[string][]byte{"d/b": data, "hard": data, "moved": {}} {
		if got, err := os.ReadFile(filepath.Join(h.home, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
		}
	}
	for to, want := range map[string]string{"/sys/kernel/x": "Permission denied", "/dev/full": "Couldn't copy file"} {
		if stdout, stderr, status := sftp("cp a " + to + "\n"); status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("cp a %s: status %d, %s%s; want %s", to, status, stdout, stderr, want)
		}
	}
	account := proc.CurrentUser().Name
	for _, path := range []string{"~/a", "~" + account + "/a", "~" + account + "/d/b"} {
		to := filepath.Join(h.dir, "fetched")
		if stdout, stderr, status := run(t, exec.CommandContext(t.Context(), "scp", append(h.options(), "127.0.0.1:"+path, to)...)); status != 0 {
			t.Errorf("scp %s: status %d, %s%s", path, status, stdout, stderr)
		}
		if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, data) {
			t.Errorf("scp %s: %d bytes, %v; want what was sent", path, len(got), err)
		}
		os.Remove(to)
	}
	scp := exec.CommandContext(t.Context(), "scp", append(h.options(), "127.0.0.1:~no-such-account/a", h.dir)...)
	if stdout, stderr, status := run(t, scp); status == 0 || !strings.Contains(stderr, "no-such-account") {
		t.Errorf("scp of an unknown account: status %d, %s%s", status, stdout, stderr)
	}
}
