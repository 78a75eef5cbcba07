//go:build linux

package sshd_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"
	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/sshd"
	"github.com/codermesh/codermesh/v2/sshmux"
	"github.com/codermesh/codermesh/v2/sshmux/bridge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host holds a running server and what an OpenSSH client needs to reach it.
type host struct {
	addr *net.TCPAddr // of an SSH server in front of it, as on a laptop
	mux  net.Addr     // of the server
	key  gossh.PublicKey
	home string
	dir  string // for the client's files

	server *sshd.Server
}

// start runs a server on a loopback listener. change may alter the environment of sessions.
func start(t testing.TB, change func(*sshd.Environment)) *host {
	t.Helper()
	return startWith(t, nil, change)
}

// startWith is like start, with a log.
func startWith(t testing.TB, log *slog.Logger, change func(*sshd.Environment)) *host {
	t.Helper()
	key, err := gossh.NewSignerFromKey(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	user := proc.CurrentUser()
	user.Home = t.TempDir()
	user.Shell = "/bin/bash"
	env := sshd.Environment{
		User: user, Directory: user.Home,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + user.Home, "CODER=true", "LANG=C.UTF-8"},
	}
	if change != nil {
		change(&env)
	}
	server, err := sshd.New(sshd.Options{
		Logger: log, Environment: func() sshd.Environment { return env },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, laptop := listen(t), listen(t)
	served, bridged := make(chan error, 1), make(chan struct{})
	go func() { served <- server.Serve(l) }()
	go func() {
		defer close(bridged)
		bridgeTo(laptop, l.Addr().String(), key)
	}()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		laptop.Close()
		<-bridged
	})
	h := &host{server: server, mux: l.Addr(), addr: laptop.Addr().(*net.TCPAddr), key: key.PublicKey(), home: user.Home, dir: t.TempDir()}
	known := "[127.0.0.1]:" + strconv.Itoa(h.addr.Port) + " " + string(gossh.MarshalAuthorizedKey(h.key))
	if err := os.WriteFile(h.known(), []byte(known), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) known() string { return filepath.Join(h.dir, "known_hosts") }

// options returns options for ssh, scp and sftp: they ignore the user's own configuration and verify the host key.
func (h *host) options() []string {
	return []string{
		"-F", "none", "-o", "UserKnownHostsFile=" + h.known(), "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR",
		"-o", "IdentityAgent=none", "-o", "IdentityFile=none", "-o", "Port=" + strconv.Itoa(h.addr.Port),
	}
}

// ssh returns an OpenSSH client with these arguments after its options: flags, then the command.
func (h *host) ssh(ctx context.Context, flags []string, command ...string) *exec.Cmd {
	args := append(h.options(), flags...)
	args = append(args, "127.0.0.1")
	return exec.CommandContext(ctx, "ssh", append(args, command...)...)
}

// run runs a command and returns its output and exit status.
func run(t testing.TB, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %v: %v", cmd.Args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// bridgeTo serves each connection as coder ssh --stdio does, until l is closed, and waits for them.
func bridgeTo(l net.Listener, agent string, key gossh.Signer) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		local, err := l.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			b := bridge.Start(local, bridge.Options{HostKey: key})
			defer b.Close()
			if remote, err := net.Dial("tcp", agent); err == nil {
				_ = b.Serve(remote) // only the CLI shows why it ended
			}
		})
	}
}

// conn returns a connection to the server, without SSH.
func (h *host) conn(t testing.TB) *sshmux.Conn {
	t.Helper()
	raw, err := net.Dial("tcp", h.mux.String())
	if err != nil {
		t.Fatal(err)
	}
	conn := sshmux.New(raw, sshmux.Options{})
	t.Cleanup(func() {
		conn.Close()
		conn.Wait()
	})
	return conn
}

// dialMux returns a Go client of the server, without SSH between them.
func (h *host) dialMux(t testing.TB) *gossh.Client {
	t.Helper()
	raw, err := net.Dial("tcp", h.mux.String())
	if err != nil {
		t.Fatal(err)
	}
	client := sshmux.Client(raw, sshmux.Options{})
	t.Cleanup(func() {
		client.Close()
		client.Wait()
	})
	return client
}

// dial returns a Go client of the server, over SSH through the bridge.
func (h *host) dial(t testing.TB) *gossh.Client {
	t.Helper()
	client, err := gossh.Dial("tcp", h.addr.String(), &gossh.ClientConfig{
		User: "any", HostKeyCallback: gossh.FixedHostKey(h.key),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}
