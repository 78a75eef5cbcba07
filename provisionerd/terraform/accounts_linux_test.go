package terraform_test

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// withoutBubblewrap makes bubblewrap fail on this machine, and returns options with folders that the accounts of jobs can reach, like those
// of a container.
func withoutBubblewrap(t *testing.T) terraform.Options {
	t.Helper()
	base, err := os.MkdirTemp("/var/lib", "cmtest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(base, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "bwrap"), []byte("#!/bin/sh\necho no namespaces here >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	opts := options(t)
	self := filepath.Join(base, "tests")
	if out, err := exec.CommandContext(t.Context(), "cp", opts.Worker[0], self).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
	opts.Worker[0] = self
	opts.RunDir, opts.CacheDir, opts.WorkspacesDir = filepath.Join(base, "r"), filepath.Join(base, "c"), filepath.Join(base, "ws")
	return opts
}

// TestAccountsAlone runs as root on a machine without namespaces: accounts, Landlock and the filter of system calls remain.
func TestAccountsAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has accounts to give")
	}
	opts := withoutBubblewrap(t)
	e := newExecutor(t, func(o *terraform.Options) { *o = opts })
	if got := e.Isolation(); !strings.HasPrefix(got, "an account per job") {
		t.Fatalf("isolation is %q, concerns %v", got, e.Concerns())
	}
	if got := strings.Join(e.Concerns(), "\n"); !strings.Contains(got, "bubblewrap does not work here") || !strings.Contains(got, "no namespaces here") {
		t.Errorf("the concerns do not say what is missing: %s", got)
	}
	private := filepath.Join(filepath.Dir(opts.RunDir), "private")
	if err := os.WriteFile(private, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	name := strings.ReplaceAll(uuid.NewString(), "-", "")
	reached := spoken(t, "@"+name)
	closed := filepath.Join(filepath.Dir(opts.RunDir), "closed.sock")
	listener, err := net.Listen("unix", closed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	if err := os.Chmod(closed, 0o660); err != nil { // like Docker's
		t.Fatal(err)
	}
	seconds := fmt.Sprintf("%06d", uuid.New().ID()%1_000_000)
	stranger := exec.Command("sleep", "600."+seconds)
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait() // it was killed
	})
	mark := "66" + fmt.Sprint(os.Getpid()) + ".5"
	attacks := map[string]string{
		"a signal to the daemon":    fmt.Sprintf("kill -0 %d", os.Getpid()),
		"the daemon's environment":  fmt.Sprintf("cat /proc/%d/environ", os.Getpid()),
		"other command lines":       "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'sleep 600[.]" + seconds + "'",
		"a file of the host":        "cat " + private,
		"an abstract socket":        "curl -s --max-time 2 --abstract-unix-socket " + name + " http://x/",
		"a socket of a group":       "curl -s --max-time 2 --unix-socket " + closed + " http://x/; test $? = 28 -o $? = 52",
		"what only root reads":      "cat /etc/shadow",
		"a user namespace":          "unshare -U true",
		"beside its folders":        "echo y >$(dirname $PWD)/z || mv $(dirname $PWD)/w $(dirname $PWD)/v",
		"the daemon's folder":       "cat $(dirname $(dirname $PWD))/x0 || ls $(dirname $(dirname $PWD))",
		"the workspaces":            "ls " + opts.WorkspacesDir,
		"root's account":            "test $(id -u) = 0 || test $(id -u) = 65534",
		"new privileges":            "! grep -q 'NoNewPrivs:.1' /proc/self/status",
		"a capability":              "! grep -q 'CapEff:.0000000000000000' /proc/self/status",
		"calls without a filter":    "! grep -q 'Seccomp:.2' /proc/self/status",
		"the memory of its process": "head -c1 /proc/$(pgrep -o -u $(id -u) terraform)/mem",
	}
	script := ""
	for what, command := range attacks {
		script += fmt.Sprintf("if ( %s ) >/dev/null 2>&1; then echo \"REACHED <%s>\"; fi\n", command, what)
	}
	script += "for i in 1 2 3 4 5; do setsid sh -c 'trap \"\" TERM INT HUP; sleep " + mark + "; sleep " + mark + "' >/dev/null 2>&1 </dev/null & done\n" +
		"while [ $(pgrep -fc 'sleep " + mark + "') -lt 6 ]; do :; done\ntouch f ~/f $TMPDIR/f && echo END\n"
	log, result := runScript(t, e, script)
	if result.GetError() != "" || !strings.Contains(log, "END\n") {
		t.Fatalf("the attack did not run: %s\n%s", result.GetError(), log)
	}
	for what := range attacks {
		if strings.Contains(log, "REACHED <"+what+">") {
			t.Errorf("the template reached %s", what)
		}
	}
	if reached() {
		t.Error("the template connected to an abstract socket")
	}
	if left := processes(t, mark); len(left) > 0 {
		t.Errorf("%d processes outlive their job", len(left))
	}
}

// TestFoldersOfTheDaemon puts folders of the daemon where templates write: the executor reports that instead of running templates.
func TestFoldersOfTheDaemon(t *testing.T) {
	opts := options(t)
	base, err := os.MkdirTemp("/var/tmp", "cmt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	opts.WorkspacesDir, opts.RunDir = filepath.Join(base, "ws"), filepath.Join(base, "ws", "run")
	if _, err := terraform.New(t.Context(), opts); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "belongs to workspaces") {
		t.Errorf("a run folder among workspaces: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root has accounts to give")
	}
	opts = withoutBubblewrap(t)
	opts.CacheDir = t.TempDir() // below /tmp, which templates share without namespaces
	if _, err := terraform.New(t.Context(), opts); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "where templates write") {
		t.Errorf("a cache below /tmp: %v", err)
	}
}

// earlierStarter is how an earlier version's starter began its process.
const earlierStarter = `
data "coder_workspace" "me" {}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  provisioner "local-exec" {
    command = "set -eu; cd \"$CODER_WORKSPACES_DIR/id\""
  }
}
`

// TestEarlierProcessStarter upgrades a workspace that an earlier version of the starter left running: starting it with that version
// explains what to do, stopping it ends its process, and the new version continues with its home folder.
func TestEarlierProcessStarter(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root could have given it to another account")
	}
	var workspaces string
	e := newExecutor(t, func(o *terraform.Options) { workspaces = o.WorkspacesDir })
	earlier := files(earlierStarter)
	m := metadata()
	id := uuid.New()
	m.WorkspaceId = id[:]
	j := newTrial(t, earlier)
	if got := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m}).GetError(); !strings.Contains(got, `Push the starter "process" of this version`) {
		t.Errorf("starting by the earlier version: %s", got)
	}
	const nobody = 65534
	dir := filepath.Join(workspaces, id.String())
	home := filepath.Join(dir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	mark := "55" + fmt.Sprint(os.Getpid()) + ".5"
	process := exec.Command("setsid", "sleep", mark)
	process.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = process.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() { _ = process.Process.Kill(); <-ended })
	appear(t, "sleep\x00"+mark, 1)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "process"), fmt.Sprint(process.Process.Pid, " ", strings.Fields(string(stat))[21]))
	write(filepath.Join(home, "kept"), "kept")
	for _, name := range []string{filepath.Join(home, "kept"), filepath.Join(dir, "process"), home, dir} {
		if err := os.Lchown(name, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	j = newTrial(t, earlier)
	ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: stop, Metadata: m}))
	vanish(t, mark)
	url, reports := agentServer(t, fakeAgent, nil)
	m.AccessUrl = url
	j = newTrial(t, starter(t, "process"))
	state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m})).GetState()
	if got := receive(t, reports, "start")["home"]; got != home {
		t.Errorf("home %s, want %s", got, home)
	}
	info, err := os.Stat(filepath.Join(home, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid == nobody || owner.Uid == 0 {
		t.Errorf("the file in the home folder belongs to %d", owner.Uid)
	}
	j = newTrial(t, starter(t, "process"))
	ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: remove, Metadata: m, State: state}))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the workspace's folder is still there: %v", err)
	}
}

// TestWorkersEndQuietly: without namespaces the daemon ends all processes of a job's account between the steps of an import, its provider worker
// among them. That is no warning.
func TestWorkersEndQuietly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has accounts to give")
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	opts := withoutBubblewrap(t)
	opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	e := newExecutor(t, func(o *terraform.Options) { *o = opts })
	j := newTrial(t, files(`
data "coder_parameter" "size" {
  name    = "size"
  default = "small"
}
data "coder_workspace" "me" {}
resource "terraform_data" "one" {
  count = data.coder_workspace.me.start_count
  input = data.coder_parameter.size.value
}
`))
	if result := j.importIt(e, &provisionerpb.TemplateImport{}); result.GetError() != "" {
		t.Fatal(result.GetError())
	}
	e.Announce() // something that the log has
	if text, err := os.ReadFile(log.Name()); err != nil || len(text) == 0 || strings.Contains(string(text), "ended on its own") {
		t.Errorf("%v\n%s", err, text)
	}
}
