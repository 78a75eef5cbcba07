package main

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestMentions tells a URL from one whose port begins with the same digits.
func TestMentions(t *testing.T) {
	t.Parallel()
	const url = "http://127.0.0.1:4000"
	for env, want := range map[string]bool{
		"A=b\x00CODER_AGENT_URL=" + url + "\x00":                       true,
		"CODER_AGENT_URL=" + url + "/":                                 true,
		"CODER_AGENT_URL=" + url:                                       true,
		"CODER_AGENT_URL=" + url + "1\x00":                             false,
		"CODER_AGENT_URL=" + url + "1\x00CODER_URL=" + url + "\x00A=b": true,
		"CODER_AGENT_URL=http://127.0.0.1\x00CODER_URL=127.0.0.1:4000": false,
	} {
		if got := mentions([]byte(env), url); got != want {
			t.Errorf("mentions(%q) = %t", env, got)
		}
	}
}

// TestEndLeft ends the processes of one deployment, and no others.
func TestEndLeft(t *testing.T) {
	t.Parallel()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	d := &deployment{front: front}
	start := func(url string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("cat") // until its input ends
		cmd.Env = append(os.Environ(), "CODER_AGENT_URL="+url)
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	own, other := start(d.url()+"/"), start(d.url()+"0/")
	if n, err := d.endLeft(t.Context()); n == 0 || err != nil {
		t.Errorf("ended %d processes, %v", n, err)
	}
	if err := own.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the deployment's process: %v", err)
	}
	if err := other.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("the other process has ended: %v", err)
	}
	if err := other.Wait(); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("the other process: %v", err)
	}
}
