package terraform_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/disk/disktest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// mute returns the address of a server that accepts connections and never answers.
func mute(t *testing.T) (address string, met <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{}, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				for _, c := range held {
					c.Close()
				}
				return
			}
			held = append(held, conn)
			select {
			case came <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return listener.Addr().String(), came
}

// TestModuleHangs: when a module's repository hangs, the import can be canceled, and has a time limit.
func TestModuleHangs(t *testing.T) {
	t.Parallel()
	address, met := mute(t)
	template := files(fmt.Sprintf("module \"m\" {\n  source = \"http://%s/module.tar.gz\"\n}\n", address))
	e := newExecutor(t)
	j := newTrial(t, template)
	go func() { <-met; close(j.stop) }()
	if result := j.importIt(e, &provisionerpb.TemplateImport{}); !result.GetCanceled() {
		t.Errorf("canceled: got %q", result.GetError())
	}
	e = newExecutor(t, func(o *terraform.Options) { o.InitTimeout = time.Second })
	j = newTrial(t, template)
	if result := j.importIt(e, &provisionerpb.TemplateImport{}); result.GetCanceled() || !strings.Contains(result.GetError(), "not initialized within 1s") {
		t.Errorf("too long: got %q (canceled %v)", result.GetError(), result.GetCanceled())
	}
}

// TestProviderCrashes: when the provider crashes in the middle of a build, the state has what was made, and the next build continues. It
// does not run beside other tests of this package: the template kills all their provider workers.
func TestProviderCrashes(t *testing.T) {
	e := newExecutor(t, func(o *terraform.Options) { o.Isolation = "none" })
	template := func(kill string) map[string]string {
		return files(fmt.Sprintf(`
resource "terraform_data" "a" {}
resource "terraform_data" "crash" {
  depends_on = [terraform_data.a]
  provisioner "local-exec" {
    command = %q
  }
}
resource "coder_agent" "main" {
  depends_on = [terraform_data.crash]
  os         = "linux"
  arch       = "amd64"
}
`, kill))
	}
	// The worker is the process that holds the socket in TMPDIR.
	j := newTrial(t, template(`for p in /proc/[0-9]*; do if tr '\0' ' ' <$p/cmdline | grep -q 'provider-worker' && [ "$(awk '/PPid/{print $2}' $p/status)" = "$(awk '/PPid/{print $2}' /proc/$PPID/status)" ]; then kill -9 $${p#/proc/}; fi; done`))
	result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
	if result.GetError() == "" || result.GetCanceled() {
		t.Fatalf("the build: %q (canceled %v)\n%s", result.GetError(), result.GetCanceled(), j.sink.text())
	}
	state := result.GetWorkspaceBuild().GetState()
	attribute(t, state, "a", "id")
	j = newTrial(t, template("true"))
	state = ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, State: state})).GetState()
	attribute(t, state, "main", "token")
}

// TestDiskFillsDuringApply: the disk fills while a build runs, and the build fails. Terraform prints the state that it cannot write to a
// file, so the state has all that was made, and the next build makes nothing again.
func TestDiskFillsDuringApply(t *testing.T) {
	t.Parallel()
	run := disktest.Small(t, "size=2m")
	e := newExecutor(t, func(o *terraform.Options) { o.RunDir = run })
	template := func(fill string) map[string]string {
		return files(fmt.Sprintf(`
resource "terraform_data" "a" {}
resource "terraform_data" "fill" {
  depends_on = [terraform_data.a]
  provisioner "local-exec" {
    command = %q
  }
}
resource "terraform_data" "last" {
  depends_on = [terraform_data.fill]
  input      = "%s"
}
`, fill, strings.Repeat("x", 20000)))
	}
	j := newTrial(t, template("cat /dev/zero >ballast; rm -f none"))
	result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
	if result.GetError() == "" {
		t.Fatalf("the build succeeded on a full disk\n%s", j.sink.text())
	}
	if want := "The provisioner's disk is full: 0 of 2 MB free in " + run; !strings.HasPrefix(result.GetError(), want) {
		t.Errorf("the build failed with %q, want %q", result.GetError(), want)
	}
	built := result.GetWorkspaceBuild()
	state := built.GetState()
	if diff := cmp.Diff([]string{"a", "fill", "last"}, statuses(t, state)); diff != "" {
		t.Errorf("state (-want +got):\n%s\nunknown %q, tainted %q, %s\n%s", diff, built.GetUnknown(), built.GetTainted(), result.GetError(), j.sink.text())
	}
	if strings.Contains(j.sink.text(), `"lineage"`) {
		t.Error("the state is in the log")
	}
	j = newTrial(t, template("true"))
	again := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, State: state}))
	for _, name := range []string{"a", "fill", "last"} {
		if attribute(t, again.GetState(), name, "id") != attribute(t, state, name, "id") {
			t.Errorf("the next build made %s again", name)
		}
	}
}

// TestFullFolders: a provisioner whose folders are full before a build says which disk it is, with the figures, and works again when there is space.
func TestFullFolders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options string
		choose  func(o *terraform.Options, dir string)
		fill    func(t testing.TB, dir string)
		want    string
	}{
		"run folder": {"size=3m", func(o *terraform.Options, dir string) { o.RunDir = dir }, func(t testing.TB, dir string) { disktest.Fill(t, filepath.Join(dir, "ballast")) },
			"The provisioner's disk is full: 0 of 3.1 MB free in "},
		"run folder without room for files": {"size=3m,nr_inodes=100", func(o *terraform.Options, dir string) { o.RunDir = dir }, disktest.FillFiles,
			"The provisioner's disk has room for no more files: 0 of 100 are free in "},
		"cache": {"size=3m", func(o *terraform.Options, dir string) { o.CacheDir = dir }, func(t testing.TB, dir string) { disktest.Fill(t, filepath.Join(dir, "ballast")) },
			"The provisioner's disk is full: 0 of 3.1 MB free in "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := disktest.Small(t, c.options)
			e := newExecutor(t, func(o *terraform.Options) { c.choose(o, dir) })
			c.fill(t, dir)
			j := newTrial(t, files(`resource "terraform_data" "a" {}`))
			result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
			if !strings.HasPrefix(result.GetError(), c.want+dir) || strings.Contains(result.GetError(), "no space left") {
				t.Errorf("the build failed with %q, want %q\n%s", result.GetError(), c.want+dir, j.sink.text())
			}
			ballast, err := filepath.Glob(filepath.Join(dir, "ballast*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range ballast {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
			j = newTrial(t, files(`resource "terraform_data" "a" {}`))
			ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
		})
	}
}

// TestLongLine: a long line is cut; a line of a megabyte, which Terraform itself omits, does no harm; and later lines arrive.
func TestLongLine(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	j := newTrial(t, files(`
resource "terraform_data" "loud" {
  provisioner "local-exec" {
    command = "head -c 60000 /dev/zero | tr '\\0' x; echo; head -c 1048576 /dev/zero | tr '\\0' y; echo; echo after-the-long-line"
  }
}
`))
	ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	if log := j.sink.text(); !strings.Contains(log, "xxxxxxxx") || !strings.Contains(log, "after-the-long-line\n") || len(log) > 256<<10 {
		t.Errorf("the log has %d bytes:\n%.3000s", len(log), log)
	}
}

// TestWrongProgram checks that errors name unsuitable programs, with a remedy.
func TestWrongProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := func(name, script string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for what, c := range map[string]struct{ path, want string }{
		"too old":      {program("old", `echo '{"terraform_version":"1.5.7"}'`), `is version "1.5.7", which is too old`},
		"no number":    {program("odd", `echo '{"terraform_version":"new"}'`), `is version "new", which is too old`},
		"another":      {program("other", `echo hello`), "is not Terraform"},
		"broken":       {program("broken", `exit 3`), "does not run"},
		"not there":    {filepath.Join(dir, "none"), "does not run"},
		"next major":   {program("two", `echo '{"terraform_version":"2.0.0"}'`), `is version "2.0.0", which is too new`},
		"tofu too old": {program("tofu", `echo '{"terraform_version":"1.8.9"}'`), `is version "1.8.9", which is too old`},
	} {
		opts := options(t)
		opts.Binary = c.path
		_, err := terraform.New(t.Context(), opts)
		if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
			continue
		}
		if f := fault.As(err); !strings.Contains(f.Detail, "1.9 or newer") {
			t.Errorf("%s: the detail %q does not say what to do", what, f.Detail)
		}
	}
}

// TestSlowSandboxIsNoReason checks that an executor whose sandbox is slow, as on a busy machine, does not go on with a weaker one.
func TestSlowSandboxIsNoReason(t *testing.T) {
	t.Parallel()
	mark := fmt.Sprintf("31536000.%d", os.Getpid()) // a year that no other process sleeps
	opts := options(t)
	opts.Binary = filepath.Join(t.TempDir(), "terraform")
	script := "#!/bin/sh\ncase \"$*\" in *-json*) echo '{\"terraform_version\":\"1.11.4\"}';; *) exec sleep " + mark + ";; esac\n"
	if err := os.WriteFile(opts.Binary, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	made := make(chan error, 1)
	go func() {
		e, err := terraform.New(ctx, opts)
		if err == nil {
			err = errors.Join(errors.New("the executor goes on"), e.Close())
		}
		made <- err
	}()
	appear(t, mark, 1)
	cancel()
	if err := testwait.For(t, "the end of the start", made); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "did not answer in its sandbox") {
		t.Errorf("got %v, want a fault that names the sandbox", err)
	}
	vanish(t, mark)
}
