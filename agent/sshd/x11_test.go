//go:build linux

package sshd_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/sshd"
)

const cookie = "00112233445566778899aabbccddeeff"

// xServer starts the user's X server, which answers every client with the cookie. It returns the number of its display.
func xServer(t *testing.T) (display int, answered <-chan string) {
	t.Helper()
	var l net.Listener
	for display = 500; ; display++ {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(6000+display)); err == nil {
			break
		}
		if display > 700 {
			t.Fatal(err)
		}
	}
	seen := make(chan string, 8)
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// Byte order, version 11, lengths of name and data; the name padded to 20; the cookie.
			hello := make([]byte, 12+20+16)
			if _, err := io.ReadFull(conn, hello); err == nil {
				seen <- hex.EncodeToString(hello[32:])
				_, _ = io.WriteString(conn, "welcome\n")
			}
			conn.Close()
		}
	}()
	return display, seen
}

// xClient opens a connection to $DISPLAY as X programs do, with the cookie that xauth has for it.
const xClient = `set -e
cookie=$(xauth list "$DISPLAY" | awk '{print $3}')
display=${DISPLAY#localhost:}
exec 3<>/dev/tcp/127.0.0.1/$((6000 + ${display%.*}))
printf 'l\0\13\0\0\0\22\0\20\0\0\0MIT-MAGIC-COOKIE-1\0\0' >&3
printf "$(echo "${1:-$cookie}" | sed 's/../\\x&/g')" >&3
cat <&3`

// withX returns an ssh client whose user has an X server.
func withX(t *testing.T, h *host, display int, command string) *exec.Cmd {
	t.Helper()
	authority := filepath.Join(h.dir, "Xauthority")
	name := "localhost:" + strconv.Itoa(display)
	add := exec.CommandContext(t.Context(), "xauth", "-q", "-f", authority, "add", "unix:"+strconv.Itoa(display), "MIT-MAGIC-COOKIE-1", cookie)
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("xauth: %v\n%s", err, out)
	}
	cmd := h.ssh(t.Context(), []string{"-Y"}, command)
	cmd.Env = append(os.Environ(), "DISPLAY="+name, "XAUTHORITY="+authority)
	return cmd
}

func TestX11(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	display, seen := xServer(t)
	if err := os.WriteFile(filepath.Join(h.home, "xclient"), []byte(xClient), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := run(t, withX(t, h, display, "bash ./xclient && echo $DISPLAY"))
	if status != 0 || !strings.HasPrefix(stdout, "welcome\nlocalhost:") {
		t.Fatalf("got status %d, %q, %q; want the X server's welcome", status, stdout, stderr)
	}
	if got := <-seen; got != cookie {
		t.Errorf("the X server got the cookie %s, want the person's own, %s", got, cookie)
	}
	// Another program of the workspace's machine does not have the cookie.
	stdout, _, _ = run(t, withX(t, h, display, "bash ./xclient "+strings.Repeat("00", 16)))
	if strings.Contains(stdout, "welcome") {
		t.Errorf("with a wrong cookie: got %q", stdout)
	}
	select {
	case got := <-seen:
		t.Errorf("a wrong cookie reached the X server as %s", got)
	default:
	}
	// The display ends with its session.
	addr := "127.0.0.1:" + strconv.Itoa(6000+displayOf(t, stdoutOf(t, withX(t, h, display, "echo $DISPLAY"))))
	testwait.Until(t, "the display is closed after its session", func() error {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close() // the session's display still listens, or another session on this machine has taken its number
			return fmt.Errorf("%s answers", addr)
		}
		return nil
	})
}

func stdoutOf(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	stdout, _, _ := run(t, cmd)
	return strings.TrimSpace(stdout)
}

func displayOf(t *testing.T, text string) int {
	t.Helper()
	number, _, _ := strings.Cut(strings.TrimPrefix(text, "localhost:"), ".")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("display %q: %v", text, err)
	}
	return n
}

func TestX11WithoutXauth(t *testing.T) {
	t.Parallel()
	h := start(t, func(env *sshd.Environment) { env.Env = append(env.Env, "PATH=/nowhere") })
	display, _ := xServer(t)
	stdout, stderr, status := run(t, withX(t, h, display, `echo "[$DISPLAY]"`))
	if status != 0 || stdout != "[]\n" || !strings.Contains(stderr, "xauth is not installed") {
		t.Errorf("got status %d, %q, %q; want no display and the reason", status, stdout, stderr)
	}
}

// TestX11RequestsAreChecked checks that a client's data contains nothing but a cookie, because it becomes part of xauth commands.
func TestX11RequestsAreChecked(t *testing.T) {
	t.Parallel()
	client := start(t, nil).dial(t)
	for _, test := range []struct {
		protocol, cookie string
		ok               bool
	}{
		{"MIT-MAGIC-COOKIE-1", cookie, true},
		{"MIT-MAGIC-COOKIE-1", cookie + "\nsource /etc/passwd", false},
		{"MIT\nquit", cookie, false}, {"", cookie, false}, {"MIT-MAGIC-COOKIE-1", "", false}, {"-q", "00", false},
		{"MIT-MAGIC-COOKIE-1", "0", false}, {"MIT-MAGIC-COOKIE-1", strings.Repeat("0", 100000), false},
	} {
		channel, requests, err := client.OpenChannel("session", nil)
		if err != nil {
			t.Fatal(err)
		}
		go gossh.DiscardRequests(requests)
		payload := gossh.Marshal(struct {
			Single           bool
			Protocol, Cookie string
			Screen           uint32
		}{false, test.protocol, test.cookie, 0})
		if ok, err := channel.SendRequest("x11-req", true, payload); err != nil || ok != test.ok {
			t.Errorf("%.30q %.40q: got %v, %v, want %v", test.protocol, test.cookie, ok, err, test.ok)
		}
		channel.Close()
	}
}

// TestX11Single: a display for a single connection accepts only one. The test runs alone: another test would take the display that is
// given back.
func TestX11Single(t *testing.T) {
	client := start(t, nil).dial(t)
	opened := client.HandleChannelOpen("x11")
	channel, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(requests)
	defer channel.Close()
	payload := gossh.Marshal(struct {
		Single           bool
		Protocol, Cookie string
		Screen           uint32
	}{true, "MIT-MAGIC-COOKIE-1", cookie, 0})
	if ok, err := channel.SendRequest("x11-req", true, payload); err != nil || !ok {
		t.Fatalf("got %v, %v", ok, err)
	}
	if ok, err := channel.SendRequest("exec", true, gossh.Marshal(struct{ Command string }{"echo $DISPLAY; cat"})); err != nil || !ok {
		t.Fatalf("got %v, %v", ok, err)
	}
	line := make([]byte, 64)
	n, err := channel.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	addr := "127.0.0.1:" + strconv.Itoa(6000+displayOf(t, string(bytes.TrimSpace(line[:n]))))
	first, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	x := <-opened
	accepted, more, err := x.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(more)
	defer accepted.Close()
	if second, err := net.Dial("tcp", addr); err == nil {
		second.Close()
		t.Error("a second connection was taken")
	}
}
