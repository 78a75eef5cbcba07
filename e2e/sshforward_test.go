package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// echo sends back what it receives, over TCP or a Unix socket.
func echo(t *testing.T, network, addr string) net.Listener {
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
			go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }()
		}
	}()
	return l
}

// ask sends something to an echo and fails the test unless it comes back. It retries while nothing listens yet.
func ask(t *testing.T, network, addr string) {
	t.Helper()
	const text = "there and back again"
	testwait.Until(t, network+" "+addr+" answers", func() error {
		conn, err := net.Dial(network, addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		_, _ = io.WriteString(conn, text)
		answer := make([]byte, len(text))
		n, err := io.ReadFull(conn, answer)
		return testwait.Unless(string(answer[:n]) == text, "got %q (%v), want %q", answer[:n], err, text)
	})
}

// sshForwards tests forwards of TCP and of Unix sockets, both ways, and a SOCKS proxy.
func sshForwards(t *testing.T, s *shell) {
	dir, err := os.MkdirTemp("", "fwd") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// The workspace has temporary folders of its own, but its home folder is here, too.
	home, stderr, err := output(s.client(t.Context(), "ssh", "coder.dev", "pwd"))
	if home = strings.TrimSpace(home); err != nil || !filepath.IsAbs(home) {
		t.Fatalf("home folder %q: %v\n%s", home, err, stderr)
	}
	target := echo(t, "tcp", "127.0.0.1:0").Addr().String()
	// Others forward to the same home folder at the same time.
	own := filepath.Join(home, filepath.Base(dir))
	socket, back := own+".t", own+".r"
	echo(t, "unix", socket)
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	local, remote, dynamic, ours := freePort(), freePort(), freePort(), freePort()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := s.client(ctx, "ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-L", local+":"+target, "-R", remote+":"+target, "-D", dynamic,
		"-L", filepath.Join(dir, "l.sock")+":"+socket, "-R", back+":"+socket, "coder.dev")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	ask(t, "tcp", "127.0.0.1:"+local)
	ask(t, "tcp", "127.0.0.1:"+remote)
	ask(t, "unix", filepath.Join(dir, "l.sock"))
	ask(t, "unix", back) // root may connect, though the mode allows only the account
	curl := exec.CommandContext(t.Context(), "curl", "-sS", "-m", "30", "-x", "socks5h://127.0.0.1:"+dynamic, s.url()+"/healthz")
	if out, err := curl.CombinedOutput(); err != nil {
		t.Errorf("through -D: %v\n%s", err, out)
	}
	// Ours: -R.
	reverse := s.command(ctx, "ssh", "-R", ours+":"+target, "dev", "--", "cat")
	reverse.Stderr = t.Output() // its error messages
	stdin, err := reverse.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := reverse.Start(); err != nil {
		t.Fatal(err)
	}
	ask(t, "tcp", "127.0.0.1:"+ours)
	stdin.Close()
	if err := reverse.Wait(); err != nil {
		t.Errorf("coder ssh -R: %v", err)
	}
}

// sshAgent uses the user's SSH agent in the workspace.
func sshAgent(t *testing.T, s *shell) {
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "laptop key", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	script := `ssh-add -q "$0" && "$@" "ssh-add -l"`
	for name, args := range map[string][]string{
		"ssh": {"ssh", "-A", "-F", s.config, "-o", "BatchMode=yes", "coder.dev"}, "coder ssh": {coder, "ssh", "-A", "dev", "--"},
	} {
		cmd := exec.CommandContext(t.Context(), "ssh-agent", append([]string{"sh", "-c", script, key}, args...)...)
		cmd.Env = s.env("admin")
		if out, stderr, err := output(cmd); err != nil || !strings.Contains(out, "laptop key") {
			t.Errorf("%s -A: got %q (%v)\n%s", name, out, err, stderr)
		}
	}
}

// sshX11 checks that a program in the workspace reaches the user's X server with the cookie that it gets there.
func sshX11(t *testing.T, s *shell) {
	var l net.Listener
	display := 800
	for ; l == nil; display++ {
		l, _ = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(6000+display+1))
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 48))
			_, _ = io.WriteString(conn, "welcome")
			conn.Close()
		}
	}()
	home := t.TempDir()
	xauth := exec.CommandContext(t.Context(), "xauth", "-q", "-f", filepath.Join(home, "Xauthority"), "add", "unix:"+strconv.Itoa(display), "MIT-MAGIC-COOKIE-1", "00112233445566778899aabbccddeeff")
	if out, err := xauth.CombinedOutput(); err != nil {
		t.Fatalf("xauth: %v\n%s", err, out)
	}
	cmd := s.client(t.Context(), "ssh", "-Y", "coder.dev", `cookie=$(xauth list "$DISPLAY" | awk '{print $3}')
display=${DISPLAY#localhost:}
exec 3<>/dev/tcp/127.0.0.1/$((6000 + ${display%.*}))
printf 'l\0\13\0\0\0\22\0\20\0\0\0MIT-MAGIC-COOKIE-1\0\0' >&3
printf "$(echo "$cookie" | sed 's/../\\x&/g')" >&3
cat <&3`)
	cmd.Env = append(cmd.Env, "DISPLAY=localhost:"+strconv.Itoa(display), "XAUTHORITY="+filepath.Join(home, "Xauthority"))
	if out, stderr, err := output(cmd); err != nil || out != "welcome" {
		t.Errorf("got %q (%v)\n%s", out, err, stderr)
	}
}

// ourForwards tests ranges, UDP and refused forwards.
func ourForwards(t *testing.T, s *shell) {
	base := testport.Range(2)
	for port := base; port < base+2; port++ {
		echo(t, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	}
	datagrams, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { datagrams.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := datagrams.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = datagrams.WriteTo(buf[:n], from)
		}
	}()
	// On another address of the loopback interface the same ports are free.
	ctx, cancel := context.WithCancel(t.Context())
	cmd := s.command(ctx, "port-forward", "dev", "--tcp", fmt.Sprintf("127.0.0.9:%d-%d:%d-%d", base, base+1, base, base+1),
		"--udp", fmt.Sprintf("127.0.0.9:%d", datagrams.LocalAddr().(*net.UDPAddr).Port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	ask(t, "tcp", "127.0.0.9:"+strconv.Itoa(base))
	ask(t, "tcp", "127.0.0.9:"+strconv.Itoa(base+1))
	ask(t, "udp", fmt.Sprintf("127.0.0.9:%d", datagrams.LocalAddr().(*net.UDPAddr).Port))
}
