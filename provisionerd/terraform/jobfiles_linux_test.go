package terraform_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
)

// TestJobFiles gives jobs a kubeconfig. TestAttacksAsPlainUser runs it again without root.
func TestJobFiles(t *testing.T) {
	t.Parallel()
	attackJobFiles(t, options(t))
}

// TestJobFilesWithAccountsAlone is TestJobFiles in most containers.
func TestJobFilesWithAccountsAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has accounts to give")
	}
	attackJobFiles(t, withoutBubblewrap(t))
}

// homeFolder makes a folder in the user's home, which jobs do not read anyway.
func homeFolder(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(home, "cmfiles")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fileAttacks prints what a job reads of its files, and BAD for each way to change them or to find where they come from. It waits for a file
// called gate, so that the test can look at the copies meanwhile.
const fileAttacks = `
echo "variable $(cat "$KUBE_CONFIG_PATH") home $(cat ~/.kube/config)"
mkdir ~/.kube/cache && echo cache
f=$KUBE_CONFIG_PATH
{ echo x >"$f" || echo x >>~/.kube/config; } && echo BAD-written
chmod 777 "$f" && echo BAD-mode
{ rm -f "$f" || mv "$f" ~ || ln -sf /etc/passwd "$f"; } && echo BAD-replaced
{ touch "${f%/*}/new" || mkdir "${f%/*}/dir"; } && echo BAD-added
{ cat SOURCE || ls SOURCE || ls FOLDER; } && echo BAD-source
env | grep -F FOLDER && echo BAD-name
echo "still $(cat "$f")"
echo "ready $PWD $f"
while [ ! -e gate ]; do sleep 0.02; done
`

// checkCopy checks the modes of the copy that a running job has, and that another job with a copy of its own cannot read it.
func checkCopy(t *testing.T, e *terraform.Executor, copied string) {
	t.Helper()
	info, err := os.Stat(copied)
	if err != nil || info.Mode().Perm()&0o337 != 0 {
		t.Errorf("the copy has mode %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Dir(copied)); err != nil || info.Mode().Perm()&0o027 != 0 {
		t.Errorf("the copies' folder has mode %v, %v", info, err)
	}
	other := newTrial(t, files("resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    command = \"echo own $(cat $KUBE_CONFIG_PATH); cat "+copied+" && echo BAD-other; true\"\n  }\n}\n"))
	other.slot = 1
	ok(t, other, other.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	if log := other.sink.text(); strings.Contains(log, "\nBAD-other") || strings.Contains(log, ") BAD-other") || !strings.Contains(log, "own CONFIG-1") {
		t.Errorf("another job: %s", log)
	}
}

// attackJobFiles checks that a job finds the operator's files and can do nothing with them but read, and that no other account can read its copies.
func attackJobFiles(t *testing.T, opts terraform.Options) {
	t.Helper()
	dir := homeFolder(t)
	source := filepath.Join(dir, "operators-kubeconfig")
	write := func(text string) {
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("CONFIG-1")
	opts.Files = []host.JobFile{{Name: "KUBE_CONFIG_PATH", Path: source}, {Name: ".kube/config", Path: source}}
	opts.Hidden = append(opts.Hidden, source)
	e := newExecutor(t, func(o *terraform.Options) { *o = opts })
	template := files("resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    command = \"bash ./script.sh\"\n  }\n}\n")
	template["script.sh"] = strings.NewReplacer("SOURCE", source, "FOLDER", dir).Replace(fileAttacks)
	j := newTrial(t, template)
	var once sync.Once
	copied := ""
	j.sink.onLine = func(line string) {
		_, found, ready := strings.Cut(line, "ready ")
		if !ready {
			return
		}
		once.Do(func() {
			var work string
			work, copied, _ = strings.Cut(found, " ")
			checkCopy(t, e, copied)
			if err := os.WriteFile(filepath.Join(work, "gate"), nil, 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	log := j.sink.text()
	for _, want := range []string{"variable CONFIG-1 home CONFIG-1", "cache", "still CONFIG-1"} {
		if !strings.Contains(log, want) {
			t.Errorf("the job does not say %q", want)
		}
	}
	if strings.Contains(log, "BAD-") || t.Failed() {
		t.Errorf("the job's log:\n%s", log)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(copied), "*")); copied == "" || err != nil || len(left) > 0 {
		t.Errorf("copies are left: %q, %v", left, err)
	}
	// The next job gets the file as it is then, and one without the file fails without a word about where it should be.
	write("CONFIG-2")
	if log, result := runScript(t, e, "cat $KUBE_CONFIG_PATH\n"); result.GetError() != "" || !strings.Contains(log, "CONFIG-2") {
		t.Errorf("the next job: %s\n%s", result.GetError(), log)
	}
	if err := os.Remove(source); err != nil {
		t.Fatal(err)
	}
	log, result := runScript(t, e, "true\n")
	if !strings.Contains(result.GetError(), "gives to jobs as KUBE_CONFIG_PATH") || strings.Contains(log+result.GetError(), dir) {
		t.Errorf("without the file: %s\n%s", result.GetError(), log)
	}
}

// TestNoJobFiles checks that without the setting jobs find neither a variable nor a file.
func TestNoJobFiles(t *testing.T) {
	t.Parallel()
	log, result := runScript(t, newExecutor(t), "echo \"variable ${KUBE_CONFIG_PATH-unset}\"; ls -A ~ | sed 's/^/home /'\n")
	if result.GetError() != "" || !strings.Contains(log, "variable unset") || strings.Contains(log, "home .") {
		t.Errorf("%s\n%s", result.GetError(), log)
	}
}

func TestJobFilesAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.WriteFile(filepath.Join(dir, "big"), make([]byte, 1<<20+1), 0o600)); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[host.JobFile]string{
		{Name: "PATH", Path: file}:                              "set that variable themselves",
		{Name: "TF_CLI_CONFIG_FILE", Path: file}:                "set that variable themselves",
		{Name: "LD_PRELOAD", Path: file}:                        "set that variable themselves",
		{Name: "../x", Path: file}:                              "a path below HOME",
		{Name: "/etc/x", Path: file}:                            "a path below HOME",
		{Name: "a/../b", Path: file}:                            "a path below HOME",
		{Name: ".", Path: file}:                                 "a path below HOME",
		{Name: "no-variable", Path: file}:                       "a path below HOME",
		{Name: "A", Path: "relative"}:                           "absolute path",
		{Name: "A", Path: dir}:                                  "not a regular file",
		{Name: "A", Path: filepath.Join(dir, "absent")}:         "no such file",
		{Name: ".kube/config", Path: filepath.Join(dir, "big")}: "larger than 1024 KiB",
	} {
		opts := options(t)
		opts.Files = []host.JobFile{given}
		if _, err := terraform.New(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", given, err, want)
		}
	}
	opts := options(t)
	opts.Files = []host.JobFile{{Name: "A", Path: file}, {Name: "A", Path: file}}
	if _, err := terraform.New(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "two files as A") {
		t.Errorf("twice: %v", err)
	}
}
