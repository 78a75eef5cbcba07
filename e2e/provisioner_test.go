package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

const provisionerKey = "the-pre-shared-key-of-these-tests"

// external starts a server without a built-in provisioner.
func external(t *testing.T, args ...string) *deployment {
	t.Helper()
	d := prepare(t, append([]string{"--provisioner-daemons=0"}, args...)...)
	d.extra = append(d.extra, "CODER_PROVISIONER_DAEMON_PSK="+provisionerKey)
	d.begin()
	return d
}

// daemon is one `coder provisionerd start` with folders of its own.
type daemon struct {
	d    *deployment
	name string
	args []string
	in   []string // command that the daemon runs in, such as ip netns exec
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended, with err
	err  error
}

// provisioner starts a daemon and waits until the server has welcomed it. Templates run without isolation, so that they can
// write where the test looks; --provisioner-isolation=auto in args turns it on.
func (d *deployment) provisioner(name string, args ...string) *daemon {
	d.t.Helper()
	p := d.prepareProvisioner(name, args...)
	p.start()
	return p
}

// prepareProvisioner is like provisioner, but does not run anything yet. The caller starts it.
func (d *deployment) prepareProvisioner(name string, args ...string) *daemon {
	p := &daemon{d: d, name: name, args: args, log: filepath.Join(d.dir, "provisioner-"+name+".log")}
	d.t.Cleanup(p.cleanup)
	return p
}

func (p *daemon) command() *exec.Cmd {
	args := append([]string{"provisionerd", "start", "--name", p.name, "--provisioner-isolation", "none"}, p.args...)
	args = append(append(p.in[:len(p.in):len(p.in)], p.d.program), args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.d.account}
	cmd.Env, cmd.Dir = append(p.d.env("provisioner-"+p.name), "CODER_URL="+p.d.url()), p.d.dir
	return cmd
}

// start starts the process and waits for the welcome.
func (p *daemon) start() {
	p.d.t.Helper()
	before := strings.Count(p.text(), `msg="provisioner started"`)
	p.begin()
	testwait.Until(p.d.t, p.name+" has started", func() error {
		select {
		case <-p.done:
			p.d.t.Fatalf("provisioner %s ended: %v\n%s", p.name, p.err, p.text())
		default:
		}
		text := p.text()
		return testwait.Unless(strings.Count(text, `msg="provisioner started"`) > before, "it has logged:\n%s", text)
	})
}

// begin starts the process without waiting.
func (p *daemon) begin() {
	p.d.t.Helper()
	file, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.d.t.Fatal(err)
	}
	defer file.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		p.d.t.Fatal(err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() { p.err = cmd.Wait(); close(done) }()
}

func (p *daemon) text() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// says waits until the daemon's log contains a text n times.
func (p *daemon) says(text string, n int) {
	p.d.t.Helper()
	testwait.Until(p.d.t, fmt.Sprintf("%s says %q", p.name, text), func() error {
		said := p.text()
		return testwait.Unless(strings.Count(said, text) >= n, "it has said so %d times, want %d; its log ends:\n%s", strings.Count(said, text), n, said[max(0, len(said)-4000):])
	})
}

// ends waits for the process to end and returns its exit code, -1 for a signal.
func (p *daemon) ends() int {
	p.d.t.Helper()
	select {
	case <-p.done:
	case <-time.After(settle):
		p.d.t.Fatalf("provisioner %s has not ended after %s\n%s", p.name, settle, p.text())
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill kills the daemon with SIGKILL; its successor survives.
func (p *daemon) kill() {
	p.d.t.Helper()
	signal(p.d.t, p.cmd.Process.Pid, syscall.SIGKILL)
	p.ends()
}

// successors returns the processes that wait for the daemon's death, or act for it.
func (p *daemon) successors() (pids []int) {
	for pid, environ := range p.d.processes() {
		if strings.Contains(environ, "CODER_PROVISIONER_HEIR=") && strings.Contains(environ, "config-provisioner-"+p.name+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (p *daemon) cleanup() {
	if p.cmd == nil {
		return // never started
	}
	// The first signal drains; another interrupts. Two in quick succession may arrive as one.
	for deadline := time.Now().Add(settle); alive(p.cmd.Process.Pid) && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	if alive(p.cmd.Process.Pid) {
		p.d.t.Errorf("provisioner %s did not end", p.name)
		_ = p.cmd.Process.Kill()
	}
	<-p.done
	if p.d.t.Failed() {
		text := p.text()
		p.d.t.Logf("log of provisioner %s:\n%s", p.name, text[max(0, len(text)-6000):])
	}
}

// chainTemplate makes three resources, one after the other. The second waits for the file go-<workspace>; each records in
// made-<workspace> that it was made.
const chainTemplate = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
locals {
  name = data.coder_workspace.me.name
}
resource "terraform_data" "first" {
  provisioner "local-exec" {
    command = "echo first >>%[1]s/made-${local.name}"
  }
}
resource "terraform_data" "second" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = "%[2]s touch %[1]s/in-flight-${local.name}; while [ ! -e %[1]s/go-${local.name} ]; do sleep 0.1; done; echo second >>%[1]s/made-${local.name}"
  }
}
resource "terraform_data" "third" {
  depends_on = [terraform_data.second]
  provisioner "local-exec" {
    command = "echo third >>%[1]s/made-${local.name}"
  }
}
`

// push pushes a template with the given text.
func (d *deployment) push(name, text string, args ...string) {
	d.t.Helper()
	dir := filepath.Join(d.dir, "template-"+name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
	d.coder(append([]string{"templates", "push", name, "-d", dir, "-y"}, args...)...)
}

// pushChain pushes chainTemplate. before is a shell command with which the second resource begins.
func (d *deployment) pushChain(name, before string, args ...string) {
	d.t.Helper()
	d.push(name, fmt.Sprintf(chainTemplate, d.dir, before), args...)
}

// run is a command of the first user that runs in the background.
type run struct {
	cmd    *exec.Cmd
	output strings.Builder
	done   chan error
}

func (d *deployment) background(args ...string) *run {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 3*settle)
	d.t.Cleanup(cancel)
	r := &run{cmd: d.command(ctx, args...), done: make(chan error, 1)}
	r.cmd.Stdout, r.cmd.Stderr = &r.output, &r.output
	if err := r.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	return r
}

// inFlight waits until the second resource of a workspace's chain is being made.
func (d *deployment) inFlight(workspace string) {
	d.t.Helper()
	testwait.Until(d.t, workspace+"'s second resource is being made", exists(filepath.Join(d.dir, "in-flight-"+workspace)))
}

// release lets a workspace's chain continue.
func (d *deployment) release(workspace string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, "go-"+workspace), nil, 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// made returns the resources of a workspace's chain whose creation has completed, in order.
func (d *deployment) made(workspace string) string {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, "made-"+workspace))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// ended waits until the workspace's latest job has ended.
func (d *deployment) ended(workspace string) workspaceJSON {
	d.t.Helper()
	testwait.Until(d.t, "the build of "+workspace+" has ended", d.jobIs(workspace, "succeeded", "failed", "canceled"))
	return d.workspace(workspace)
}

// state returns the names of the resources in the state of a workspace's latest build, sorted.
func (d *deployment) state(w workspaceJSON) string {
	d.t.Helper()
	var state struct {
		Resources []struct {
			Mode string `json:"mode"`
			Name string `json:"name"`
		} `json:"resources"`
	}
	status, text := d.status("/api/v2/workspacebuilds/" + w.LatestBuild.ID + "/state")
	if status != http.StatusOK {
		d.t.Fatalf("state of the build: %d %s", status, text)
	}
	if text == "" {
		return ""
	}
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		d.t.Fatalf("state of the build: %v in %q", err, text)
	}
	var names []string
	for _, r := range state.Resources {
		if r.Mode == "managed" {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// expectState fails the test unless the latest build of a workspace has the job status and exactly these resources.
func (d *deployment) expectState(workspace, status, resources string) workspaceJSON {
	d.t.Helper()
	w := d.ended(workspace)
	if got := w.LatestBuild.Job.Status; got != status {
		d.t.Errorf("%s: job %s (%s), want %s", workspace, got, w.LatestBuild.Job.Error, status)
	}
	if got := d.state(w); got != resources {
		d.t.Errorf("%s: the state has %q, want %q", workspace, got, resources)
	}
	return w
}

// TestProvisionerSlotsAndCancel: one daemon with two slots runs two builds at once, and a third after them. Its metrics report that. A
// cancel interrupts a build, or kills it with all its processes if it does not end; a canceled waiting build never starts. SIGTERM
// drains, a second one interrupts.
func TestProvisionerSlotsAndCancel(t *testing.T) {
	t.Parallel()
	d := external(t)
	metrics := testport.Addr()
	p := d.provisioner("rack", "--concurrency", "2", "--cancel-grace", "1s", "--prometheus-address", metrics)
	d.pushChain("chain", "")
	// This build ignores the interrupt, in a process of its own.
	stubborn := filepath.Join(d.dir, "stubborn.pid")
	d.pushChain("stubborn", "trap '' INT TERM; (trap '' INT TERM; echo $$ >"+stubborn+"; while :; do sleep 0.1; done) &")
	d.fillsSlots(metrics)
	d.cancelsRunning()
	d.killsStubborn(stubborn)
	d.drains(p, metrics)
}

// fillsSlots runs two builds at once in two slots, and cancels a third that waits for one.
func (d *deployment) fillsSlots(metrics string) {
	t := d.t
	t.Helper()
	first, second := d.background("create", "one", "-t", "chain", "-y"), d.background("create", "two", "-t", "chain", "-y")
	d.inFlight("one")
	d.inFlight("two")
	third := d.background("create", "three", "-t", "chain", "-y")
	testwait.Until(t, "the third build waits", func() error {
		var w workspaceJSON
		if err := call(http.MethodGet, d.url()+"/api/v2/users/me/workspace/three", d.token, nil, &w); err != nil {
			return err // not made yet
		}
		return testwait.Equal(w.LatestBuild.Job.Status, "pending")
	})
	if got := scrape(t, metrics, "codermesh_provisionerd_jobs_running"); got != "2" {
		t.Errorf("jobs that run: %s, want 2", got)
	}
	// A waiting build that is canceled never starts.
	if err := call(http.MethodPatch, d.url()+"/api/v2/workspacebuilds/"+d.workspace("three").LatestBuild.ID+"/cancel", d.token, nil, nil); err != nil {
		t.Fatal(err)
	}
	d.expectState("three", "canceled", "")
	<-third.done
	d.release("one")
	d.release("two")
	for _, r := range []*run{first, second} {
		if err := <-r.done; err != nil {
			t.Errorf("create: %v\n%s", err, r.output.String())
		}
	}
	if got := d.made("three"); got != "" {
		t.Errorf("the build that was canceled while it waited made %q", got)
	}
	// The daemon counts a job when it has reported its result.
	const starts = `codermesh_provisionerd_jobs_total{kind="start",status="succeeded"}`
	testwait.Until(t, "two starts count as succeeded", metricIs(t, metrics, starts, "2"))
}

// cancelsRunning cancels a build while it runs: what it made is in the state, and the next build continues from there.
func (d *deployment) cancelsRunning() {
	t := d.t
	t.Helper()
	d.background("create", "four", "-t", "chain", "-y")
	d.inFlight("four")
	cancelBuild(d, "four")
	d.expectState("four", "canceled", "first second")
	if got := d.made("four"); got != "first" {
		t.Errorf("made %q before the cancel, want first", got)
	}
	d.release("four")
	d.coder("start", "four", "-y")
	d.expectState("four", "succeeded", "first second third")
	if got := d.made("four"); got != "first second third" {
		t.Errorf("made %q after the cancel and a start", got)
	}
}

// killsStubborn cancels a build that does not end: it is killed with its whole process group after --cancel-grace.
func (d *deployment) killsStubborn(stubborn string) {
	t := d.t
	t.Helper()
	d.background("create", "five", "-t", "stubborn", "-y")
	d.inFlight("five")
	testwait.Until(t, "the process that ignores the interrupt runs", func() error {
		text, err := os.ReadFile(stubborn)
		return testwait.Unless(strings.HasSuffix(string(text), "\n"), "its file has %q (%v)", text, err)
	})
	cancelBuild(d, "five")
	w := d.ended("five")
	if got := w.LatestBuild.Job.Status; got != "canceled" {
		t.Errorf("the stubborn build: %s, want canceled", got)
	}
	if got := d.state(w); got != "first" && got != "first second" {
		t.Errorf("the stubborn build's state has %q", got)
	}
	text, err := os.ReadFile(stubborn)
	if err != nil {
		t.Fatal(err)
	}
	if pid := atoi(t, strings.TrimSpace(string(text))); alive(pid) {
		t.Errorf("process %d of the stubborn build lives on", pid)
	}
}

// drains stops a daemon with SIGTERM: the running build finishes, and no other begins.
func (d *deployment) drains(p *daemon, metrics string) {
	t := d.t
	t.Helper()
	r := d.background("create", "six", "-t", "chain", "-y")
	d.inFlight("six")
	signal(t, p.cmd.Process.Pid, syscall.SIGTERM)
	testwait.Until(t, "the daemon drains", metricIs(t, metrics, "codermesh_provisionerd_draining", "1"))
	late := d.background("create", "seven", "-t", "chain", "-y")
	d.release("six")
	if err := <-r.done; err != nil {
		t.Errorf("create six: %v\n%s", err, r.output.String())
	}
	if code := p.ends(); code != 0 {
		t.Errorf("a drained daemon ended with code %d\n%s", code, p.text())
	}
	if successors := p.successors(); len(successors) > 0 {
		t.Errorf("the drained daemon left successors: %v", successors)
	}
	if got := d.workspace("seven").LatestBuild.Job.Status; got != "pending" {
		t.Errorf("the build after SIGTERM: %s, want pending", got)
	}
	p.start()
	d.inFlight("seven")
	signal(t, p.cmd.Process.Pid, syscall.SIGTERM)
	testwait.Until(t, "the daemon drains again", metricIs(t, metrics, "codermesh_provisionerd_draining", "1"))
	signal(t, p.cmd.Process.Pid, syscall.SIGTERM)
	if code := p.ends(); code != 0 {
		t.Errorf("an interrupted daemon ended with code %d\n%s", code, p.text())
	}
	w := d.expectState("seven", "failed", "first second")
	if !strings.Contains(w.LatestBuild.Job.Error, "told to stop") {
		t.Errorf("the interrupted build says %q", w.LatestBuild.Job.Error)
	}
	<-late.done
}

// cancelBuild cancels the latest build of a workspace.
func cancelBuild(d *deployment, workspace string) {
	d.t.Helper()
	if err := call(http.MethodPatch, d.url()+"/api/v2/workspacebuilds/"+d.workspace(workspace).LatestBuild.ID+"/cancel", d.token, nil, nil); err != nil {
		d.t.Fatal(err)
	}
}

func atoi(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("%q is no number: %v", text, err)
	}
	return n
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !regexp.MustCompile(`\) Z `).Match(stat)
}

// scrape returns the value of a metric, or "" if it does not exist.
func scrape(t *testing.T, address, name string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestProvisionerRefusals checks that a failure at startup prints exactly one clear line.
func TestProvisionerRefusals(t *testing.T) {
	t.Parallel()
	d := external(t)
	p := d.provisioner("rack")
	for what, c := range map[string]struct {
		name string
		env  []string
		args []string
		want string
	}{
		"wrong key":        {name: "other", env: []string{"CODER_PROVISIONER_DAEMON_PSK=guess"}, want: "error: The pre-shared key is wrong"},
		"no credential":    {name: "other", env: []string{"CODER_PROVISIONER_DAEMON_PSK="}, want: "error: the provisioner has no credential"},
		"same name there":  {name: "rack", env: []string{"CODER_CONFIG_DIR=" + filepath.Join(d.dir, "elsewhere")}, want: `error: Another provisioner with the name "rack" is connected`},
		"same name here":   {name: "rack", want: "error: A provisioner with this name runs on this machine already"},
		"unknown tag form": {name: "other", args: []string{"--tag", "environment"}, want: `error: the tag "environment" is not key=value`},
		"no terraform":     {name: "other", args: []string{"--terraform", "/nowhere/terraform"}, want: "error: /nowhere/terraform does not run"},
		"too many slots":   {name: "other", args: []string{"--concurrency", "65"}, want: "error: --concurrency cannot be 65"},
		"bad isolation":    {name: "other", args: []string{"--provisioner-isolation", "some"}, want: `error: isolation "some" is unknown`},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), settle)
			defer cancel()
			name := c.name
			if name == "other" {
				name = strings.ReplaceAll(what, " ", "-") // unique, because the cases run in parallel
			}
			other := &daemon{d: d, name: name, args: c.args}
			made := other.command()
			cmd := exec.CommandContext(ctx, made.Path, made.Args[1:]...)
			cmd.Env, cmd.Dir = slices.Concat(made.Env, c.env), made.Dir
			said, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v, want exit code 1", err)
			}
			if strings.Count(string(said), "\n"+c.want)+strings.Count(string(said), c.want) == 0 || strings.Count(string(said), "error: ") != 1 {
				t.Errorf("said %q, want one line with %q", said, c.want)
			}
		})
	}
	// The earlier daemon is not disturbed: it runs a build.
	t.Cleanup(func() {
		if strings.Contains(p.text(), "connection lost") {
			t.Errorf("the daemon was disturbed:\n%s", p.text())
		}
	})
}

// TestProvisionerBeforeServer checks that a daemon waits for a server that is away at the start, and logs a line about it at once and
// then once per minute.
func TestProvisionerBeforeServer(t *testing.T) {
	t.Parallel()
	d := prepare(t, "--provisioner-daemons=0")
	d.extra = append(d.extra, "CODER_PROVISIONER_DAEMON_PSK="+provisionerKey)
	p := d.prepareProvisioner("early")
	p.begin()
	p.says("not connected to the server, trying again", 1)
	d.begin()
	p.says("provisioner started", 1)
	if n := strings.Count(p.text(), "not connected to the server"); n != 1 {
		t.Errorf("the server's absence of some seconds was said %d times\n%s", n, p.text())
	}
	d.push("empty", "terraform {}\n")
	d.coder("create", "dev", "-t", "empty", "-y")
}
