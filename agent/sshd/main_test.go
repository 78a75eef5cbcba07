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
	"testing"

	"go.uber.org/goleak"
	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/agent/proc"
	"github.com/codermesh/codermesh/agent/sshd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a running server and what an OpenSSH client needs to reach it.
type host struct {
	addr *net.TCPAddr
	key  gossh.PublicKey
	home string
	dir  string // for the client's files

	server *sshd.Server
}

// start runs a server on a loopback listener. change may alter what sessions get.
func start(t testing.TB, change func(*sshd.Environment)) *host {
	t.Helper()
	return startWith(t, nil, change)
}

// startWith is start with a log.
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
		Logger: log, HostKeys: []gossh.Signer{key},
		Environment: func(context.Context) (sshd.Environment, error) { return env, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	h := &host{server: server, addr: l.Addr().(*net.TCPAddr), key: key.PublicKey(), home: user.Home, dir: t.TempDir()}
	known := "[127.0.0.1]:" + strconv.Itoa(h.addr.Port) + " " + sshd.AuthorizedKey(h.key) + "\n"
	if err := os.WriteFile(h.known(), []byte(known), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) known() string { return filepath.Join(h.dir, "known_hosts") }

// options are those of ssh, scp and sftp alike: the user's own configuration plays no part, and the host key is verified.
func (h *host) options() []string {
	return []string{
		"-F", "none", "-o", "UserKnownHostsFile=" + h.known(), "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR",
		"-o", "IdentityAgent=none", "-o", "IdentityFile=none", "-o", "Port=" + strconv.Itoa(h.addr.Port),
	}
}

// ssh is an OpenSSH client with these arguments after its options: flags, then the command.
func (h *host) ssh(ctx context.Context, flags []string, command ...string) *exec.Cmd {
	args := append(h.options(), flags...)
	args = append(args, "127.0.0.1")
	return exec.CommandContext(ctx, "ssh", append(args, command...)...)
}

// run returns what a command printed and its exit status.
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

// dial is a Go client of the server.
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
