package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// deployment is a running server with the first user signed in and the process template pushed, for tests that need more
// than a script can express.
type deployment struct {
	*server
	t     *testing.T
	token string // the first user's
}

// deploy starts a server with args and cleans it up with the test.
func deploy(t *testing.T, args ...string) *deployment {
	t.Helper()
	d := startServer(t, args...)
	d.pushProcess()
	return d
}

// pushProcess pushes the process starter.
func (d *deployment) pushProcess() {
	d.t.Helper()
	template := filepath.Join(d.dir, "process")
	d.coder("templates", "init", "--id", "process", template)
	d.coder("templates", "push", "process", "-d", template, "-y")
}

// startServer is like deploy, without a template.
func startServer(t *testing.T, args ...string) *deployment {
	t.Helper()
	d := prepare(t, args...)
	d.begin()
	return d
}

// prepare is like startServer, but does not run anything yet.
func prepare(t *testing.T, args ...string) *deployment {
	t.Helper()
	return prepareIn(t, t.TempDir(), args...) // the folder is made first, so that it is removed last
}

// prepareIn is like prepare, in a folder that the test removes.
func prepareIn(t *testing.T, dir string, args ...string) *deployment {
	t.Helper()
	d := &deployment{server: newServer(dir), t: t}
	d.args = args
	t.Cleanup(d.keepLogs)
	t.Cleanup(d.cleanup)
	return d
}

// keepLogs keeps the logs of all processes if the test has failed.
func (d *deployment) keepLogs() {
	if d.t.Failed() {
		keepLogs(d.t.Name(), d.dir)
	}
}

// keepLogs copies the logs below a folder to the one that the report at the end of `make test` names.
func keepLogs(test, dir string) {
	kept := os.Getenv("TEST_LOGS")
	if kept == "" {
		return
	}
	kept = filepath.Join(kept, test)
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Ext(name) != ".log" {
			return nil //nolint:nilerr // folders go while their owners end
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		copied := filepath.Join(kept, relative)
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return err
		}
		return os.WriteFile(copied, text, 0o644)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: keep the logs of", test+":", err)
	}
}

// begin starts a prepared server and signs the first user in.
func (d *deployment) begin() {
	d.t.Helper()
	t := d.t
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.coder(d.firstLogin()...)
	token, err := signIn(d.url(), "ada@example.com")
	if err != nil {
		t.Fatal(err)
	}
	d.token = token
}

// firstLogin returns the arguments that make the first user and sign it in. The setup code is in a file of each server of the deployment;
// servers of earlier releases ask for none, and ignore what the command line sends.
func (d *deployment) firstLogin() []string {
	d.t.Helper()
	files, err := filepath.Glob(filepath.Join(d.dir, "*", "config-admin", "setup-code"))
	if own, _ := filepath.Glob(filepath.Join(d.dir, "config-admin", "setup-code")); len(own) > 0 {
		files = own
	}
	if err != nil {
		d.t.Fatal(err)
	}
	code := []byte("earlier-release")
	if len(files) > 0 {
		if code, err = os.ReadFile(files[0]); err != nil {
			d.t.Fatal(err)
		}
	}
	return []string{
		"login", d.url(), "--setup-code", strings.TrimSpace(string(code)),
		"--first-user-username", "ada", "--first-user-email", "ada@example.com", "--first-user-password", password,
	}
}

// try runs the command line as the first user.
func (d *deployment) try(args ...string) (stdout, stderr string, err error) {
	return d.tryAs("admin", args...)
}

// tryAs runs the command line as another user.
func (d *deployment) tryAs(user string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*settle)
	defer cancel()
	cmd := d.commandAs(ctx, user, args...)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

func (d *deployment) command(ctx context.Context, args ...string) *exec.Cmd {
	return d.commandAs(ctx, "admin", args...)
}

func (d *deployment) commandAs(ctx context.Context, user string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, programFor(args), args...)
	cmd.Env, cmd.Dir = d.env(user), d.dir
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// member creates a user and signs it in, for use with tryAs or with the returned token.
func (d *deployment) member(name string) (token string) {
	d.t.Helper()
	d.coder("users", "create", "--username", name, "--email", name+"@example.com", "--password", password)
	if _, stderr, err := d.tryAs(name, "login", d.url(), "--email", name+"@example.com", "--password", password); err != nil {
		d.t.Fatalf("login as %s: %v\n%s", name, err, stderr)
	}
	token, err := signIn(d.url(), name+"@example.com")
	if err != nil {
		d.t.Fatal(err)
	}
	return token
}

// talk is an open session in which the workspace answers line by line.
type talk struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// talk opens a session in a workspace, and waits until its path is direct: only a direct session outlives its server.
func (d *deployment) talk(workspace string) *talk {
	d.t.Helper()
	facts := filepath.Join(d.dir, "network-"+workspace)
	s := d.lines(workspace, "--network-info-dir", facts, "--network-info-interval", "100ms")
	testwait.Until(d.t, "the session's path is direct", func() error {
		var seen []string
		files, _ := filepath.Glob(filepath.Join(facts, "*.json"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil && strings.Contains(string(text), `"p2p":true`) {
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s (%v)", text, err))
		}
		return fmt.Errorf("information about the network: %q", seen)
	})
	return s
}

// lines opens a session in a workspace, whatever its path.
func (d *deployment) lines(workspace string, args ...string) *talk {
	d.t.Helper()
	s := &talk{t: d.t}
	s.cmd = d.command(d.t.Context(), append(append([]string{"ssh"}, args...), workspace, "--", "while read line; do echo got $line; done")...)
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		d.t.Fatal(err)
	}
	s.lines = bufio.NewScanner(stdout)
	if err := s.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	s.echo(-1)
	return s
}

// echo sends a line in the session and fails the test unless the workspace answers.
func (s *talk) echo(n int) {
	s.t.Helper()
	fmt.Fprintf(s.stdin, "%d\n", n)
	if !s.lines.Scan() || s.lines.Text() != fmt.Sprintf("got %d", n) {
		s.t.Fatalf("line %d: got %q (%v)", n, s.lines.Text(), s.lines.Err())
	}
}

// end closes the session and fails the test unless it succeeded.
func (s *talk) end() {
	s.t.Helper()
	s.stdin.Close()
	if err := s.cmd.Wait(); err != nil {
		s.t.Fatalf("the session ended with %v", err)
	}
}

// asRoot skips a test that mounts folders if that is not possible.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount what this test needs")
	}
}

// coder is like try, but fails the test unless the command succeeds.
func (d *deployment) coder(args ...string) string {
	d.t.Helper()
	stdout, stderr, err := d.try(args...)
	if err != nil {
		d.t.Fatalf("coder %s: %v\n%s%s\nserver's log:\n%s", strings.Join(args, " "), err, stdout, stderr, d.logText())
	}
	return stdout
}

// get requests a path of the API as the first user.
func (d *deployment) get(path string, into any) {
	d.t.Helper()
	if err := call(http.MethodGet, d.url()+path, d.token, nil, into); err != nil {
		d.t.Fatal(err)
	}
}

// agents lists the agent processes of this deployment, without the keepers above them.
func (d *deployment) agents() (pids []int) {
	for pid := range d.processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		args := strings.Split(string(line), "\x00")
		if len(args) > 1 && args[1] == "agent" && strings.Contains(string(environ), "CODER_AGENT_CHILD=1") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// signal sends a signal to a process of ours and fails the test if it is gone.
func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("signal %d: %v", pid, err)
	}
}

type workspaceJSON struct {
	ID          string `json:"id"`
	LatestBuild struct {
		ID     string `json:"id"`
		Status string `json:"status"`
		Job    struct {
			Status        string `json:"status"`
			Error         string `json:"error"`
			WaitingReason string `json:"waiting_reason"`
		} `json:"job"`
		Resources []struct {
			Type   string `json:"type"`
			Agents []struct {
				ID     string `json:"id"`
				Name   string `json:"name"`
				Status string `json:"status"`
			} `json:"agents"`
		} `json:"resources"`
	} `json:"latest_build"`
}

func (d *deployment) workspace(name string) (w workspaceJSON) {
	d.t.Helper()
	d.get("/api/v2/users/me/workspace/"+name, &w)
	return w
}

// agentID returns the id of the workspace's only agent.
func (w workspaceJSON) agentID() string {
	for _, resource := range w.LatestBuild.Resources {
		for _, agent := range resource.Agents {
			return agent.ID
		}
	}
	return ""
}
