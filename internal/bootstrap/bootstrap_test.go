package bootstrap_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/internal/bootstrap"
)

// agent is what the server hands out in these tests.
const agent = "#!/bin/sh\necho agent=$1 url=$CODER_AGENT_URL auth=$CODER_AGENT_AUTH token=$CODER_AGENT_TOKEN found=$(command -v coder) home=$HOME tf=$TF_REATTACH_PROVIDERS\n"

// tools makes a PATH with the programs that a script may use, and the downloader under test.
func tools(t *testing.T, downloader string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "mktemp", "chmod", "sleep", "uname", "cat", downloader} {
		if name == "" {
			continue
		}
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// start runs the script as the provider would fill it in and returns its lines.
func start(t *testing.T, shell []string, url, path string, env ...string) *bufio.Scanner {
	t.Helper()
	script := bootstrap.Script("linux", "amd64")
	script = strings.NewReplacer("${ACCESS_URL}", url+"/", "${AUTH_TYPE}", "token").Replace(script)
	// The script never ends by itself: a line that does not come would be waited for without end.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, shell[0], append(shell[1:], "-c", script)...)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + path, "HOME=" + t.TempDir(), "CODER_AGENT_TOKEN=t0ken"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The script never ends by itself; neither do the programs it waits for.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return bufio.NewScanner(out)
}

// until reads lines until one has the text.
func until(t *testing.T, lines *bufio.Scanner, want string) string {
	t.Helper()
	var seen []string
	for lines.Scan() {
		seen = append(seen, lines.Text())
		if strings.Contains(lines.Text(), want) {
			return lines.Text()
		}
	}
	t.Fatalf("no line with %q in:\n%s", want, strings.Join(seen, "\n"))
	return ""
}

func shells(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, name := range []string{"sh", "dash", "bash"} {
		if path, err := exec.LookPath(name); err == nil {
			found[name] = []string{path}
		}
	}
	if path, err := exec.LookPath("busybox"); err == nil {
		found["busybox"] = []string{path, "sh"}
	}
	return found
}

func TestFetchAndBecome(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Path != "/bin/coder-linux-amd64" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, agent)
	}))
	t.Cleanup(server.Close)
	runs := 0
	for name, shell := range shells(t) {
		for _, downloader := range []string{"curl", "wget", "busybox"} {
			if _, err := exec.LookPath(downloader); err != nil {
				continue
			}
			runs++
			t.Run(name+" with "+downloader, func(t *testing.T) {
				line := until(t, start(t, shell, server.URL, tools(t, downloader)), "agent=")
				for _, want := range []string{"agent=agent ", "url=" + server.URL + "/ ", "auth=token ", "token=t0ken ", "found=/tmp/coder."} {
					if !strings.Contains(line, want) {
						t.Errorf("%q does not have %q", line, want)
					}
				}
			})
		}
	}
	if runs == 0 {
		t.Fatal("this machine has neither curl nor wget nor busybox")
	}
	if got := int(requests.Load()); got != runs {
		t.Errorf("%d requests for %d starts", got, runs)
	}
}

// TestRetries has a server that fails at first.
func TestRetries(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, agent)
	}))
	t.Cleanup(server.Close)
	lines := start(t, []string{"sh"}, server.URL, os.Getenv("PATH"))
	until(t, lines, "bin/coder-linux-amd64 failed")
	until(t, lines, "agent=agent")
}

// TestStays covers what cannot get better by itself: the script says what is wrong and stays.
func TestStays(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "\x7fELFnonsense") }))
	t.Cleanup(server.Close)
	for name, shell := range shells(t) {
		for problem, c := range map[string]struct {
			path string
			env  string
			want string
		}{
			"no downloader": {path: tools(t, ""), want: "install curl, wget or busybox"},
			"no token":      {path: os.Getenv("PATH"), env: "CODER_AGENT_TOKEN=", want: "CODER_AGENT_TOKEN is not set"},
			"wrong program": {path: os.Getenv("PATH"), want: "does not run here"},
		} {
			if name == "busybox" && problem != "no token" {
				continue // it is a downloader itself, and reads what is no program as a script
			}
			t.Run(name+" "+problem, func(t *testing.T) {
				t.Parallel()
				lines := start(t, shell, server.URL, c.path, c.env)
				until(t, lines, c.want)
				until(t, lines, "waiting, so that you can look")
			})
		}
	}
}

// TestStartedByBuild has the environment of a build around it, whose folders go away.
func TestStartedByBuild(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, agent) }))
	t.Cleanup(server.Close)
	line := until(t, start(t, []string{"sh"}, server.URL, os.Getenv("PATH"), "TF_REATTACH_PROVIDERS={}", "HOME=/gone", "TMPDIR=/gone"), "agent=")
	if strings.Contains(line, "/gone") || !strings.HasSuffix(line, "tf=") {
		t.Errorf("the agent has the build's environment: %s", line)
	}
}

func TestPlatforms(t *testing.T) {
	t.Parallel()
	for _, arch := range []string{"amd64", "arm64", "armv7"} {
		script := bootstrap.Script("linux", arch)
		for _, want := range []string{"ARCH=" + arch + "\n", "${ACCESS_URL}", "${AUTH_TYPE}", "coder-linux-${ARCH}"} {
			if !strings.Contains(script, want) {
				t.Errorf("the script for %s does not have %q", arch, want)
			}
		}
	}
	if got := bootstrap.Script("plan9", "mips") + bootstrap.Script("linux", "mips"); got != "" {
		t.Errorf("a script for an unknown platform: %s", got)
	}
}
