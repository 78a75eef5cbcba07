package terraform_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// spied makes a program of the given path that is this test's program and records its starts.
func spied(t *testing.T, name string) (starts func() []started) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Link(self, name) != nil { // on another disk, or another account's
		if out, err := exec.CommandContext(t.Context(), "cp", self, name).CombinedOutput(); err != nil {
			t.Fatalf("copy: %v\n%s", err, out)
		}
	}
	dir := name + ".starts"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return func() []started {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var all []started
		for _, entry := range entries {
			text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				t.Fatal(err)
			}
			var s started
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			all = append(all, s)
		}
		return all
	}
}

// hostileVariables change what a program does before its main function, or what shells and libraries load. A value holds the mark.
func hostileVariables(mark string) map[string]string {
	all := map[string]string{}
	for _, name := range []string{
		"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_DEBUG_OUTPUT", "GCONV_PATH", "ENV", "BASH_ENV", "PS4", "GODEBUG", "GOTRACEBACK", "GLIBC_TUNABLES",
		"LOCPATH", "NLSPATH", "MALLOC_TRACE", "HOSTALIASES", "RES_OPTIONS", "TMPDIR", "TF_LOG_PATH", "TF_REATTACH_PROVIDERS", "PYTHONPATH", "PERL5LIB",
	} {
		all[name] = "/nonexistent/" + mark
	}
	all["LD_DEBUG"] = "libs"
	return all
}

// markedTemplate has a parameter and a variable with a mark, and starts what ask.sh does.
const markedTemplate = `
data "coder_workspace" "me" {}
data "coder_parameter" "p" {
  name    = "p"
  default = "parameter-%[1]s"
}
variable "v" {
  default = "variable-%[1]s"
}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  input = "${data.coder_parameter.p.value} ${var.v}"
  provisioner "local-exec" {
    command = "sh ./ask.sh"
  }
}
`

// spiedBubblewrap puts a bubblewrap into PATH that notes how it was started.
func spiedBubblewrap(t *testing.T, base string) (starts func() []started) {
	t.Helper()
	program, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	bwrap := filepath.Join(base, "bin", "bwrap")
	starts = spied(t, bwrap)
	if err := os.WriteFile(bwrap+".before", []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(bwrap)+":"+os.Getenv("PATH"))
	return starts
}

// inheritedFile opens a file of the daemon's that its children inherit, as from a careless parent.
func inheritedFile(t *testing.T, mark string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "inherited-"+mark)
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(inherited); file.Close() })
	return name
}

// markedFiles is a template whose workspace has variables and an argument with a mark, and writes down what it has.
func markedFiles(mark string, variables map[string]string) map[string]string {
	var env, given strings.Builder
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		fmt.Fprintf(&env, " %s=%s", name, variables[name])
		fmt.Fprintf(&given, " --env %s", name)
	}
	template := files(fmt.Sprintf(markedTemplate, mark))
	template["ask.sh"] = fmt.Sprintf("%s \"$CODER_PROVISIONER_PROGRAM\" workspace-process start%s -- /bin/sh -c \"$(cat script.sh)\" %s 2>said || { tail -n 3 said; exit 1; }\n",
		strings.TrimSpace(env.String()), given.String(), mark)
	template["script.sh"] = `env >~/env; ls -l /proc/self/fd >~/files 2>&1; umask >~/umask; echo "$0 $PWD" >~/out; echo END >>~/out; exec sleep 600`
	return template
}

// checkWorkspace checks that a workspace has all that its template chose, and nothing of the daemon's.
func checkWorkspace(t *testing.T, home, mark, secret string, variables map[string]string) {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(home, name))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
	testwait.Until(t, "the workspace has written all", func() error {
		out := read("out")
		return testwait.Unless(strings.HasSuffix(out, "END\n"), "%q", out)
	})
	if got := read("out"); !strings.HasPrefix(got, mark+" "+home+"\n") {
		t.Errorf("the workspace's argument and folder: %q", got)
	}
	for name, value := range variables {
		if !strings.Contains("\n"+read("env"), "\n"+name+"="+value+"\n") {
			t.Errorf("the workspace does not have its variable %s", name)
		}
	}
	if strings.Contains(read("files"), secret) {
		t.Errorf("the workspace inherited a file:\n%s", read("files"))
	}
	if got := strings.TrimSpace(read("umask")); got != "0022" && got != "022" {
		t.Errorf("the workspace has the umask %s", got)
	}
}

// checkStart checks that what was started with the daemon's rights has no text of a job, and allowed variables only.
func checkStart(t *testing.T, s started, mark string, allowed []string) {
	t.Helper()
	text, err := json.Marshal(struct{ Args, Env, Dir any }{s.Args, s.Env, s.Dir})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), mark) {
		t.Errorf("a job's text reached %s", text)
	}
	for _, line := range s.Env {
		if name, _, _ := strings.Cut(line, "="); !slices.Contains(allowed, name) {
			t.Errorf("%s started with the variable %s", s.Args[0], line)
		}
	}
}

// TestStartsAreClean: what the daemon starts with its own rights, before anything is confined, gets nothing that a job or a workspace chose: no
// variable, argument, folder or file. The workspace's process gets all of it.
func TestStartsAreClean(t *testing.T) {
	type setting struct {
		program string // its folder
		alone   bool   // without bubblewrap
	}
	settings := map[string]setting{
		"bubblewrap, a folder with blanks": {program: "it's a folder"},
		"bubblewrap, a long path":          {program: strings.Repeat(strings.Repeat("x", 99)+"/", 3)},
	}
	if os.Geteuid() == 0 {
		settings["accounts alone, a folder with blanks"] = setting{program: "it's a folder", alone: true}
	}
	for name, with := range settings {
		t.Run(name, func(t *testing.T) {
			var opts terraform.Options
			base := t.TempDir()
			if with.alone {
				opts = withoutBubblewrap(t)
				base = filepath.Dir(opts.RunDir)
			} else {
				opts = options(t)
			}
			program := filepath.Join(base, with.program, "coder")
			ownStarts := spied(t, program)
			opts.Worker[0] = program
			bwrapStarts := func() []started { return nil }
			if !with.alone {
				bwrapStarts = spiedBubblewrap(t, base)
			}
			mark := strings.ReplaceAll(uuid.NewString(), "-", "")
			secret := inheritedFile(t, mark)
			old := unix.Umask(0)
			t.Cleanup(func() { unix.Umask(old) })

			e := newExecutor(t, func(o *terraform.Options) { *o = opts })
			if got := strings.Contains(e.Isolation(), "bubblewrap"); got == with.alone {
				t.Fatalf("isolation is %s: %v", e.Isolation(), e.Concerns())
			}
			victim := t.TempDir()
			variables := hostileVariables(mark)
			variables["LD_DEBUG_OUTPUT"] = filepath.Join(victim, mark) // the loader writes there
			template := markedFiles(mark, variables)
			m := metadata()
			id := uuid.New()
			m.WorkspaceId = id[:]
			m.WorkspaceName, m.OwnerName, m.OwnerFullName, m.TemplateName = "workspace-"+mark, "owner-"+mark, "full-"+mark, "template-"+mark
			j := newTrial(t, template)
			state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m})).GetState()
			checkWorkspace(t, filepath.Join(opts.WorkspacesDir, id.String(), "home"), mark, secret, variables)
			j = newTrial(t, template)
			ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: remove, Metadata: m, State: state}))

			if left, err := os.ReadDir(victim); err != nil || len(left) > 0 {
				t.Errorf("the loader wrote with the daemon's rights: %v, %v", left, err)
			}
			own, bwrap := ownStarts(), bwrapStarts()
			if len(own) < 4 || !with.alone && len(bwrap) < 4 {
				t.Fatalf("%d starts of the program and %d of bubblewrap were seen", len(own), len(bwrap))
			}
			for _, s := range own {
				checkStart(t, s, mark, []string{
					"PATH", "GOMAXPROCS", "CHECKPOINT_DISABLE", "TF_APPEND_USER_AGENT", "TF_IN_AUTOMATION", "TF_LOG", "TF_LOG_CORE", "TF_LOG_PATH", "TF_LOG_PROVIDER",
				})
			}
			for _, s := range bwrap {
				checkStart(t, s, mark, []string{"PATH"})
				files := 2 // the policy and the note
				if slices.ContainsFunc(s.Files, func(name string) bool { return strings.HasPrefix(name, opts.WorkspacesDir) }) {
					files = 3 // also what tells that the workspace's program runs
				}
				if s.Dir != "/" || s.Umask != "0022" || len(s.Files) != files {
					t.Errorf("bubblewrap started in %s with the umask %s and the files %q", s.Dir, s.Umask, s.Files)
				}
			}
		})
	}
}
