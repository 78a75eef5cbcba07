package terraform_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// The tests of this file check the promises of docs/provisioners.md, "What templates may do", each with an attacker's line and, beside
// them, what an owner's template must still be able to do. TestAttacksAsPlainUser runs them again without root.

// plainTests matches the tests that hold for every account.
const plainTests = "^(TestAttacks|TestPrivateRegistry|TestInitHasNoCredentials|TestTemplatesDoNotConfigureGit|TestStartsAreClean|TestWorkspaceLimits|TestNothingSurvives|TestSurvivorCannotSwapFolders|TestWorkspacesApart|TestProcessStarter|TestOtherJobsWorker|TestProviderIsNeededLate|TestTimeLimit|TestDiskLimit|TestMemoryAndProcessLimits|TestJobFiles)$"

func TestAttacksAsPlainUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this is a plain user's run already")
	}
	const uid = 12345
	dir, err := os.MkdirTemp("/var/tmp", "cmuser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "tests")
	if out, err := exec.CommandContext(t.Context(), "cp", self, program).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
	// The attacker's own folder is not below one that is private to sandboxes, so that writing there is an attack.
	home, err := os.MkdirTemp("/run", "cmu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	for name, mode := range map[string]os.FileMode{dir: 0o755, home: 0o700} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(home, uid, uid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run", plainTests)
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as a plain user: %v\n%s", err, out)
	}
}

// spoken returns a unix socket that reports whether anything connected.
func spoken(t *testing.T, name string) (reached func() bool) {
	t.Helper()
	listener, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(name, "@") {
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	came := make(chan struct{}, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case came <- struct{}{}:
		default:
		}
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it is closed below
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return func() bool {
		select {
		case <-came:
			return true
		default:
			return false
		}
	}
}

// openFile makes a file that every account may read, in a folder that every account may use.
func openFile(t *testing.T, parent string) (dir, file string) {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "cmo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	file = filepath.Join(dir, "open")
	if err := os.WriteFile(file, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, file} {
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir, file
}

// runScript makes a job run a script with its own bash.
func runScript(t *testing.T, e *terraform.Executor, script string) (log string, result *provisionerpb.Result) {
	t.Helper()
	template := files("resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    command = \"bash ./script.sh\"\n  }\n}\n")
	template["script.sh"] = script
	j := newTrial(t, template)
	result = j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
	return j.sink.text(), result
}

// surroundings are an executor, and what is around it that no template may reach.
type surroundings struct {
	e                      *terraform.Executor
	run, cache, workspaces string                 // its folders
	dir, file              string                 // in /tmp, open to everyone, with a socket called s
	varDir, varFile        string                 // in /var/tmp
	docker, abstract       string                 // sockets
	reached                map[string]func() bool // whether a socket was spoken to
	stranger               int                    // a process that sleeps for 600.seconds
	seconds                string
	home                   string // of another workspace
}

func newSurroundings(t *testing.T) *surroundings {
	t.Helper()
	s := &surroundings{
		abstract: strings.ReplaceAll(uuid.NewString(), "-", ""), seconds: fmt.Sprintf("%06d", uuid.New().ID()%1_000_000),
	}
	s.dir, s.file = openFile(t, "/tmp")
	s.varDir, s.varFile = openFile(t, "/var/tmp")
	s.docker = filepath.Join(s.dir, "docker.sock")
	s.e = newExecutor(t, func(o *terraform.Options) {
		s.run, s.cache, s.workspaces = o.RunDir, o.CacheDir, o.WorkspacesDir
		o.DockerSocket = s.docker
	})
	s.reached = map[string]func() bool{
		"a socket in /tmp":     spoken(t, filepath.Join(s.dir, "s")),
		"a socket in /var/tmp": spoken(t, filepath.Join(s.varDir, "s")),
		"an abstract socket":   spoken(t, "@"+s.abstract),
		"Docker's socket":      spoken(t, s.docker),
	}
	stranger := exec.Command("sleep", "600."+s.seconds)
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait() // it was killed
	})
	s.stranger = stranger.Process.Pid
	s.home = filepath.Join(s.workspaces, uuid.NewString(), "home")
	if err := os.MkdirAll(s.home, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.home, "file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	return s
}

// attacks are the commands that must fail in a template, by what they reach.
func (s *surroundings) attacks() map[string]string {
	attacks := map[string]string{
		"a socket in /tmp":               "curl -s --max-time 2 --unix-socket " + filepath.Join(s.dir, "s") + " http://x/",
		"a socket in /var/tmp":           "curl -s --max-time 2 --unix-socket " + filepath.Join(s.varDir, "s") + " http://x/",
		"an abstract socket":             "curl -s --max-time 2 --abstract-unix-socket " + s.abstract + " http://x/",
		"Docker's socket":                "curl -s --max-time 2 --unix-socket " + s.docker + " http://x/",
		"the host's own Docker socket":   "test -e /var/run/docker.sock",
		"a file in the host's /tmp":      "cat " + s.file,
		"a file in the host's /var/tmp":  "cat " + s.varFile,
		"writing to the host's /tmp":     "echo y >" + filepath.Join(s.dir, "made"),
		"the daemon's process":           fmt.Sprintf("test -e /proc/%d", os.Getpid()),
		"a signal to the daemon":         fmt.Sprintf("kill -0 %d", os.Getpid()),
		"a signal to another process":    fmt.Sprintf("kill -0 %d", s.stranger),
		"the list of other processes":    "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'sleep 600[.]" + s.seconds + "'",
		"the sandbox's command":          "ls " + s.run + "/x0 || ls $(dirname $(dirname $PWD))/x0",
		"the daemon's folder":            "ls $(dirname $(dirname $PWD))/lock " + s.run + "/lock",
		"writing beside its own folders": "echo y >$(dirname $PWD)/z || mkdir $(dirname $PWD)/z || mv $(dirname $PWD)/w $(dirname $PWD)/v",
		"the cache of templates":         "test -n \"$(ls " + s.cache + "/templates)\"",
		"another workspace's folder":     "ls " + s.workspaces + "/*/home || cat " + s.home + "/file",
		"what only root reads":           "cat /etc/shadow",
		"process 1's environment":        "cat /proc/1/environ",
		"process 1's memory":             "head -c1 /proc/1/mem",
		"the kernel's settings":          "echo x >/proc/sys/kernel/core_pattern",
		"our program":                    "echo x >/run/codermesh/coder",
		"a user namespace":               "unshare -U true",
		"a mount namespace":              "unshare -m true",
		"a process namespace":            "unshare -Up --fork true",
		"a mount":                        "mount -t tmpfs none /mnt",
		"new privileges":                 "! grep -q 'NoNewPrivs:.1' /proc/self/status",
		"system calls without a filter":  "! grep -q 'Seccomp:.2' /proc/self/status",
		"a capability":                   "! grep -q 'CapEff:.0000000000000000' /proc/self/status",
		"a device":                       "mknod d b 7 0",
	}
	for name := range refusedCalls {
		attacks["the call "+name] = "$CODER_PROVISIONER_PROGRAM try-call '" + name + "'"
	}
	return attacks
}

// templateWorks are the commands that must work in a template, by what they use.
func templateWorks() map[string]string {
	works := map[string]string{
		"its working folder":  "echo x >f && chmod +x f && mkdir -p d/e && mv f d/e/f && rm -r d",
		"its home":            "echo x >~/f && test -s $HOME/f",
		"its TMPDIR":          "test -s $(f=$(mktemp) && echo x >$f && echo $f)",
		"a private /tmp":      "echo x >/tmp/f && echo x >/var/tmp/f && echo x >/dev/shm/f",
		"a name":              "test -n \"$(id -un)\" && whoami",
		"other programs":      "git init -q . && tar cf x.tar script.sh && printf x | gzip | gunzip",
		"its own processes":   "sleep 60 & kill $! && ps -e >/dev/null",
		"a terminal":          "script -qec true /dev/null || command -v script >/dev/null || true",
		"the network":         "curl -sI --max-time 5 $URL",
		"its own unix socket": "test -S $TMPDIR/provider",
		"devices":             "head -c1 /dev/urandom >/dev/null && : >/dev/null",
	}
	for name := range allowedCalls {
		works["the call "+name] = "$CODER_PROVISIONER_PROGRAM try-call '" + name + "'"
	}
	return works
}

// TestAttacks makes a template try everything that the page says it cannot do, and do what templates do.
func TestAttacks(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	attacks, works := s.attacks(), templateWorks()
	site := spokenHTTP(t)
	script := "export URL=" + site + "\n"
	for what, command := range attacks {
		script += fmt.Sprintf("if ( %s ) >/dev/null 2>&1; then echo \"REACHED <%s>\"; fi\n", command, what)
	}
	for what, command := range works {
		script += fmt.Sprintf("if ( %s ) >/dev/null 2>problem; then echo \"WORKS <%s>\"; else echo \"FAILS <%s>\" $(cat problem); fi\n", command, what, what)
	}
	log, result := runScript(t, s.e, script+"echo END\n")
	if result.GetError() != "" || !strings.Contains(log, "END\n") {
		t.Fatalf("the attack did not run: %s\n%s", result.GetError(), log)
	}
	for what := range attacks {
		if strings.Contains(log, "REACHED <"+what+">") {
			t.Errorf("the template reached %s", what)
		}
	}
	for what, came := range s.reached {
		if came() {
			t.Errorf("the template connected to %s", what)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "made")); err == nil {
		t.Error("the template wrote to the host's /tmp")
	}
	for what := range works {
		if !strings.Contains(log, "WORKS <"+what+">") {
			t.Errorf("the template cannot use %s:\n%s", what, log)
		}
	}
	if os.Geteuid() == 0 && !strings.Contains(s.e.Isolation(), "an account per job") {
		t.Errorf("isolation is %s", s.e.Isolation())
	}
}

// spokenHTTP starts a web server on loopback.
func spokenHTTP(t *testing.T) string {
	t.Helper()
	url, _ := agentServer(t, "", nil)
	return url
}

// TestNothingSurvives makes a job leave processes that hide as well as they can.
func TestNothingSurvives(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	mark := "77" + fmt.Sprint(os.Getpid()) + ".5"
	log, result := runScript(t, e, `
for i in $(seq 40); do setsid sh -c 'trap "" TERM INT HUP; sleep `+mark+`; sleep `+mark+`' >/dev/null 2>&1 </dev/null & done
setsid setsid nohup sleep `+mark+` >/dev/null 2>&1 </dev/null &
while [ $(pgrep -fc 'sleep `+mark+`') -lt 41 ]; do :; done
echo ALL-RUN
`)
	if result.GetError() != "" || !strings.Contains(log, "ALL-RUN") {
		t.Fatalf("the job: %s\n%s", result.GetError(), log)
	}
	if left := processes(t, mark); len(left) > 0 {
		t.Errorf("%d processes outlive their job", len(left))
	}
}

// evilMirror makes a provider registry on disk whose one provider runs ./evil.sh in a session of its own.
func evilMirror(t *testing.T) {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "cmmirror")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, registry := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		dir := filepath.Join(base, "mirror", registry, "example/evil/1.2.3", runtime.GOOS+"_"+runtime.GOARCH)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "cp", self, filepath.Join(dir, pluginMark+"evil_v1.2.3")).CombinedOutput(); err != nil {
			t.Fatalf("copy provider: %v\n%s", err, out)
		}
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(base, "terraformrc")
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", filepath.Join(base, "mirror"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TF_CLI_CONFIG_FILE", config)
}

// TestSurvivorCannotSwapFolders: a program of an import's first plan survives and puts links where the daemon fills the folder of the
// second. The daemon neither empties nor fills what they point to, and the import works.
func TestSurvivorCannotSwapFolders(t *testing.T) {
	evilMirror(t)
	victim := t.TempDir()
	for dir := victim; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o777); err != nil {
			break // it belongs to another account
		}
	}
	precious := filepath.Join(victim, "precious")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t)
	j := newTrial(t, map[string]string{
		"evil.sh": `
w=$PWD; s=${w%/w}
while :; do
  for name in zz_job.auto.tfvars.json terraform.tfstate main.tf pwned.sh; do rm -f $name; ln -s ` + victim + `/$name $name; done
  mv $s/w $s/w.old; ln -s ` + victim + ` $s/w
done 2>/dev/null
`,
		"pwned.sh": "echo written by the template\n",
		"main.tf": `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
    evil  = { source = "example/evil" }
  }
}
data "coder_workspace" "me" {}
data "coder_parameter" "p" {
  name    = "p"
  default = "d"
}
resource "coder_agent" "far" {
  provider = evil
  os       = "linux"
  arch     = "amd64"
}
`})
	result := j.importIt(e, &provisionerpb.TemplateImport{})
	left, err := os.ReadDir(victim)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Name() != "precious" {
		t.Errorf("in the folder that the links point to: %v", left)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "x" {
		t.Errorf("the precious file: %q, %v", text, err)
	}
	if left := processes(t, victim); len(left) > 0 { // the script, which other runs of this test have too, names it
		t.Errorf("%d processes outlive the import", len(left))
	}
	// What the attack does to its own folder may fail its own import, and nothing else.
	if found := result.GetTemplateImport(); result.GetError() == "" && len(found.GetParameters()) != 1 {
		t.Errorf("parameters %v", found.GetParameters())
	}
	honest := newTrial(t, files("data \"coder_parameter\" \"p\" {\n  name    = \"p\"\n  default = \"d\"\n}\n"))
	result = honest.importIt(e, &provisionerpb.TemplateImport{})
	if result.GetError() != "" || len(result.GetTemplateImport().GetParameters()) != 1 {
		t.Errorf("an honest import in the same slot: %s", result.GetError())
	}
}

// apartTemplate is a workspace whose process runs a script.
const apartTemplate = `
data "coder_workspace" "me" {}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  provisioner "local-exec" {
    command = "exec \"$CODER_PROVISIONER_PROGRAM\" workspace-process start --env GIVEN -- /bin/bash -c \"$(cat script.sh)\""
    environment = { GIVEN = "given" }
  }
}
`

// TestWorkspacesApart starts two workspaces as processes: neither reaches the other, or Docker, or what is not its own, and each has what a
// developer needs.
func TestWorkspacesApart(t *testing.T) {
	t.Parallel()
	dir, file := openFile(t, "/tmp")
	docker := filepath.Join(dir, "docker.sock")
	connected := spoken(t, docker)
	var workspaces string
	e := newExecutor(t, func(o *terraform.Options) { workspaces, o.DockerSocket = o.WorkspacesDir, docker })
	template := func(script string) map[string]string {
		all := files(apartTemplate)
		all["script.sh"] = script
		return all
	}
	up := func(script string) (home string, down func()) {
		m := metadata()
		id := uuid.New()
		m.WorkspaceId = id[:]
		j := newTrial(t, template(script))
		state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m})).GetState()
		return filepath.Join(workspaces, id.String(), "home"), func() {
			j := newTrial(t, template(script))
			ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: remove, Metadata: m, State: state}))
		}
	}
	read := func(name string) (found string) {
		t.Helper()
		testwait.Until(t, name+" is complete", func() error {
			text, err := os.ReadFile(name)
			if found = string(text); err == nil && !strings.HasSuffix(found, "END\n") {
				err = fmt.Errorf("it is %q", found)
			}
			return err
		})
		return found
	}
	mark := "99" + fmt.Sprint(os.Getpid()) + ".5"
	first, downFirst := up("echo secret >~/secret; chmod -R a+rX ~; echo secret >/tmp/of-the-first; echo END >~/ready; sleep " + mark)
	read(filepath.Join(first, "ready"))
	second, downSecond := up(`
try() { if ( eval "$2" ) >/dev/null 2>&1; then echo "REACHED <$1>"; fi; }
{
  try "the other's home" 'cat ` + first + `/secret'
  try "the list of workspaces" 'test $(ls ` + workspaces + ` | wc -l) -gt 1'
  try "the other's /tmp" 'cat /tmp/of-the-first'
  try "the host's /tmp" 'cat ` + file + `'
  try "the other's process" 'cat /proc/[0-9]*/comm | grep -qx sleep'
  try "Docker" 'curl -s --max-time 2 --unix-socket ` + docker + ` http://x/'
  try "the provisioner's folder" 'ls /run/cm* /run/codermesh/x0'
  try "its own sandbox" 'echo x >$(dirname ~)/sandbox'
  try "the build's environment" 'env | grep -q TF_'
  try "a user namespace" 'unshare -U true'
  [ "$GIVEN" = given ] && echo "WORKS <environment>"
  [ "$PWD" = "$HOME" ] && echo x >f && echo "WORKS <home>"
  echo x >/tmp/f && echo "WORKS </tmp>"
  [ "$(id -un)" = "$USER" ] && echo "WORKS <account>"
  sleep 60 & kill $! && echo "WORKS <signals>"
  echo END
} >out 2>&1
sleep ` + mark)
	log := read(filepath.Join(second, "out"))
	if strings.Contains(log, "REACHED") || connected() {
		t.Errorf("the workspace reached what is not its own:\n%s", log)
	}
	if got := strings.Count(log, "WORKS"); got != 5 {
		t.Errorf("%d of 5 things work:\n%s", got, log)
	}
	// Both outlive their builds. The second shell starts its sleep only after the END that was read above.
	appear(t, "sleep\x00"+mark, 2)
	downFirst()
	downSecond()
	if left := processes(t, mark); len(left) > 0 {
		t.Errorf("%d processes outlive their workspaces", len(left))
	}
	for _, home := range []string{first, second} {
		if _, err := os.Stat(filepath.Dir(home)); !os.IsNotExist(err) {
			t.Errorf("a workspace's folder is still there: %v", err)
		}
	}
}
