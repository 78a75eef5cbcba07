package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestSessionsAreToldWhy: when the workspace stops, its users see the reason, at once if the agent can report it, and within 15 s
// otherwise.
func TestSessionsAreToldWhy(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.coder("create", "second", "-t", "process", "-y")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type session struct {
		name   string
		cmd    *exec.Cmd
		stderr *bytes.Buffer
		ended  chan error
	}
	var sessions []session
	for name, cmd := range map[string]*exec.Cmd{
		"ssh dev": s.client(ctx, "ssh", "coder.dev", "echo in; cat"), "coder ssh dev": s.command(ctx, "ssh", "dev", "--", "echo in; cat"),
		"ssh second": s.client(ctx, "ssh", "coder.second", "echo in; cat"), "coder ssh second": s.command(ctx, "ssh", "second", "--", "echo in; cat"),
	} {
		one := session{name, cmd, new(bytes.Buffer), make(chan error, 1)}
		cmd.Stderr = one.stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		giveUp := time.AfterFunc(settle, func() { _ = cmd.Process.Signal(os.Interrupt) })
		line, err := bufio.NewReader(stdout).ReadString('\n')
		giveUp.Stop()
		if err != nil || line != "in\n" {
			_ = cmd.Wait()
			t.Fatalf("%s: got %q (%v)\n%s", name, line, err, one.stderr)
		}
		go func() { one.ended <- cmd.Wait() }()
		sessions = append(sessions, one)
	}
	// Meanwhile a list shows the paths: it waits for the agents, but not forever.
	told := regexp.MustCompile(`(?m)^dev +(direct|relayed)`)
	for list, deadline := "", time.Now().Add(settle); !told.MatchString(list); {
		if time.Now().After(deadline) {
			t.Fatalf("coder list tells no path:\n%s", list)
		}
		list = s.coder("list", "-c", "name,path")
	}
	s.coder("stop", "dev", "-y")
	s.coder("delete", "second", "-y")
	for _, one := range sessions {
		want := "was stopped by ada"
		if strings.HasSuffix(one.name, "second") {
			want = "was deleted"
		}
		select {
		case err := <-one.ended:
			if status(err) != 255 || !strings.Contains(one.stderr.String(), want) {
				t.Errorf("%s ended with %v and %q, want 255 and %q", one.name, err, one.stderr, want)
			}
		case <-time.After(settle):
			t.Errorf("%s has not ended", one.name)
		}
	}
}

// TestSessionsEndWithTheSignIn checks that a session ends when its sign-in ends, and reports that as the reason.
func TestSessionsEndWithTheSignIn(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	token := strings.TrimSpace(s.coder("tokens", "create", "--name", "laptop"))
	for _, name := range []string{"coder ssh", "coder ssh --stdio"} {
		cmd := s.command(t.Context(), "ssh", "dev", "--", "echo in; cat")
		if name == "coder ssh --stdio" {
			cmd = s.client(t.Context(), "ssh", "coder.dev", "echo in; cat")
		}
		cmd.Env = append(cmd.Environ(), "CODER_SESSION_TOKEN="+token)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "in\n" {
			_ = cmd.Wait()
			t.Fatalf("%s: got %q (%v)\n%s", name, line, err, &stderr)
		}
		giveUp := time.AfterFunc(settle, func() { _ = cmd.Process.Kill() })
		s.coder("tokens", "remove", "laptop")
		err = cmd.Wait()
		giveUp.Stop()
		if want := "your session has ended"; status(err) != 255 || !strings.Contains(stderr.String(), want) || !strings.Contains(stderr.String(), "Try: coder login") {
			t.Errorf("%s ended with %v and %q, want 255 and %q", name, err, &stderr, want)
		}
		token = strings.TrimSpace(s.coder("tokens", "create", "--name", "laptop"))
	}
	if got := s.ssh(t, "echo still here"); got != "still here\n" {
		t.Errorf("with another session: got %q", got)
	}
}

// TestPortForwardEndsWithTheSignIn checks that a port-forward whose sign-in ends reports that and exits, instead of listening in vain.
func TestPortForwardEndsWithTheSignIn(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	target := echo(t, "tcp", "127.0.0.1:0").Addr().(*net.TCPAddr).Port
	port := freePort()
	var stderr bytes.Buffer
	cmd := s.command(t.Context(), "port-forward", "dev", "--tcp", fmt.Sprintf("%s:%d", port, target))
	cmd.Env = append(cmd.Environ(), "CODER_SESSION_TOKEN="+strings.TrimSpace(s.coder("tokens", "create", "--name", "laptop")))
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	giveUp := time.AfterFunc(2*settle, func() { _ = cmd.Process.Kill() })
	defer giveUp.Stop()
	ask(t, "tcp", "127.0.0.1:"+port)
	s.coder("tokens", "remove", "laptop")
	if err := cmd.Wait(); status(err) != 1 || !strings.Contains(stderr.String(), "your session has ended") || !strings.Contains(stderr.String(), "Try: coder login") {
		t.Errorf("it ended with %v and %q, want 1 and that the session has ended", err, stderr.String())
	}
}

// TestPortForwardOutlivesARestart checks that a port-forward keeps its listeners across a restart of the workspace, and continues.
func TestPortForwardOutlivesARestart(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	target := echo(t, "tcp", "127.0.0.1:0").Addr().(*net.TCPAddr).Port
	port := freePort()
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	cmd := s.command(ctx, "port-forward", "dev", "--tcp", fmt.Sprintf("%s:%d", port, target))
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { cancel(); <-ended }()
	ask(t, "tcp", "127.0.0.1:"+port)
	open, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	s.coder("stop", "dev", "-y")
	// The earlier connection ends.
	if err := open.SetReadDeadline(time.Now().Add(settle)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := open.Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("a connection through a stopped workspace: %v, want its end", err)
	}
	s.coder("start", "dev", "-y")
	ask(t, "tcp", "127.0.0.1:"+port)
	s.coder("delete", "dev", "-y")
	select {
	case err := <-ended:
		ended <- err
		if status(err) != 1 || !strings.Contains(stderr.String(), "was deleted") {
			t.Errorf("after the workspace's end: %v, %q", err, stderr.String())
		}
	case <-time.After(settle):
		t.Error("it goes on without its workspace")
	}
}
