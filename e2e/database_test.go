package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// postmaster returns the process of the PostgreSQL below a configuration folder.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// status requests a path of the API as the first user, and returns the response's status and text.
func (d *deployment) status(path string) (int, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.url()+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Coder-Session-Token", d.token)
	resp, err := d.web.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// TestOwnDatabaseIsKilled checks that when the server's own PostgreSQL is killed, the server starts it again, a session in a workspace
// does not notice, and nothing is lost.
func TestOwnDatabaseIsKilled(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.coder("create", "dev", "-t", "process", "-y")
	talk := d.talk("dev")
	talk.echo(0)
	config := filepath.Join(d.dir, "config-admin")
	before := postmaster(t, config)
	// This also cuts its last connections, as when the kernel runs out of memory.
	signal(t, before, syscall.SIGKILL)
	killed := time.Now()
	testwait.Until(t, "PostgreSQL restarted", func() error {
		text, err := os.ReadFile(filepath.Join(config, "postgres", "data", "postmaster.pid"))
		first, _, _ := strings.Cut(string(text), "\n")
		return testwait.Unless(err == nil && first != strconv.Itoa(before) && first != "", "postmaster.pid is %q (%v); the killed one was %d", text, err, before)
	})
	testwait.Until(t, "the API answers", d.answers("/api/v2/users/me", http.StatusOK))
	t.Logf("requests worked %s after the kill", time.Since(killed).Round(10*time.Millisecond))
	talk.echo(1)
	talk.end()
	if out := d.coder("list"); !strings.Contains(out, "dev") {
		t.Errorf("list: got %q, want dev", out)
	}
	d.coder("stop", "dev", "-y")
	d.coder("start", "dev", "-y")
	if out := d.coder("ssh", "dev", "--", "echo back"); out != "back\n" {
		t.Errorf("ssh: got %q", out)
	}
}

// externalDatabase prepares a PostgreSQL that is not the server's own.
func externalDatabase(t *testing.T) (start func() *embedded.Server) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "e2edb") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return func() *embedded.Server {
		t.Helper()
		db, err := embedded.Start(t.Context(), embedded.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
}

// report returns the health report as the first user.
func (d *deployment) report() sdk.HealthReport {
	d.t.Helper()
	report, err := d.client().Health(d.t.Context())
	if err != nil {
		d.t.Errorf("health report: %v", err)
	}
	return report
}

// waiter is a command that waits for the database.
type waiter struct {
	t         *testing.T
	cmd       *exec.Cmd
	want      string // its output
	out, said bytes.Buffer
	ended     chan error
}

const waitingLine = "The database is not reachable. Waiting up to 30s for it.\n"

// startDuringOutage starts sessions and other commands while the database is away, and returns when each has said that it waits.
func (d *deployment) startDuringOutage() (all []*waiter) {
	d.t.Helper()
	for range 3 {
		all = append(all,
			&waiter{want: "here\n", cmd: d.command(d.t.Context(), "ssh", "dev", "--", "echo here")},
			&waiter{want: "dev", cmd: d.command(d.t.Context(), "list")})
	}
	all = append(all, &waiter{want: "-", cmd: d.command(d.t.Context(), "tokens", "create")}) // a change
	for _, s := range all {
		s.t, s.ended = d.t, make(chan error, 1)
		told := make(chan struct{})
		s.cmd.Stdout, s.cmd.Stderr = &s.out, io.MultiWriter(&s.said, &firstWrite{told: told})
		if err := s.cmd.Start(); err != nil {
			d.t.Fatal(err)
		}
		go func() { s.ended <- s.cmd.Wait() }()
		select {
		case <-told:
		case err := <-s.ended:
			d.t.Fatalf("%q ended without the database: %v, %q", s.cmd.Args, err, &s.said)
		case <-d.t.Context().Done():
		}
	}
	return all
}

// ends checks that a command succeeds, and has said once that it waited.
func (s *waiter) ends(back time.Time) {
	s.t.Helper()
	err := <-s.ended
	s.t.Logf("%q ended %s after the database was back", s.cmd.Args[1:], time.Since(back).Round(10*time.Millisecond))
	if err != nil || !strings.Contains(s.out.String(), s.want) || strings.Count(s.said.String(), waitingLine) != 1 {
		s.t.Errorf("%q: %v, %q, said %q", s.cmd.Args, err, &s.out, &s.said)
	}
}

// firstWrite tells when something was written.
type firstWrite struct {
	once sync.Once
	told chan struct{}
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(func() { close(f.told) })
	return len(p), nil
}

// TestExternalDatabaseGoesAway: while an external database is away, the API reports that with status 503, and so does the health report; sessions
// continue. Sessions and commands that start meanwhile wait for it, and a build that was running succeeds after it comes back.
func TestExternalDatabaseGoesAway(t *testing.T) {
	t.Parallel()
	start := externalDatabase(t)
	db := start()
	t.Cleanup(func() { stopDatabase(t, db) })
	d := prepare(t, "--postgres-url", db.URL(), "--provisioner-isolation", "none")
	d.begin()
	d.pushProcess()
	d.coder("create", "dev", "-t", "process", "-y")
	talk := d.talk("dev")
	talk.echo(0)

	// This build waits for the test while the database is away.
	template := filepath.Join(d.dir, "slow")
	if err := os.Mkdir(template, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(template, "main.tf"), fmt.Appendf(nil, slowTemplate, d.dir), 0o644); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "slow", "-d", template, "-y")
	create := d.command(t.Context(), "create", "second", "-t", "slow", "-y")
	var said bytes.Buffer
	create.Stdout, create.Stderr = &said, &said
	if err := create.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the second resource is being made", exists(filepath.Join(d.dir, "in-flight")))

	d.report() // monitoring asks for it all the time: its token is known when the database goes
	stopDatabase(t, db)
	testwait.Until(t, "the API answers 503", d.answers("/api/v2/users/me", http.StatusServiceUnavailable))
	if _, text := d.status("/api/v2/users/me"); !strings.Contains(text, "database") {
		t.Errorf("without a database: got %q, want a word about it", text)
	}
	// The liveness probe still passes: restarting the server would not help.
	if err := d.healthy(); err != nil {
		t.Errorf("without a database: %v", err)
	}
	testwait.Until(t, "the health report says that the database is away", func() error {
		report := d.report()
		away := slices.ContainsFunc(report.Sections, func(s sdk.HealthSection) bool { return s.Code == "database_unreachable" })
		return testwait.Unless(!report.Healthy && away, "it says %+v", report)
	})
	starting := d.startDuringOutage()
	talk.echo(1)
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	talk.echo(2)

	db = start()
	back := time.Now()
	for _, s := range starting {
		s.ends(back)
	}
	testwait.Until(t, "the API answers", d.answers("/api/v2/users/me", http.StatusOK))
	if err := create.Wait(); err != nil {
		t.Errorf("coder create: %v\n%s", err, &said)
	}
	if got := d.workspace("second").LatestBuild.Status; got != "running" {
		t.Errorf("the build that ran meanwhile: got %q, want running", got)
	}
	talk.echo(3)
	talk.end()
	if out := d.coder("ssh", "dev", "--", "echo back"); out != "back\n" {
		t.Errorf("ssh: got %q", out)
	}
}

func stopDatabase(t *testing.T, db *embedded.Server) {
	t.Helper()
	// A test's own context has ended when its cleanups run.
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	if err := db.Stop(ctx); err != nil {
		t.Errorf("stop PostgreSQL: %v", err)
	}
}

// onSmallDisk prepares a deployment whose configuration folder, with the database, is a disk of its own.
func onSmallDisk(t *testing.T, args ...string) (d *deployment, config string) {
	t.Helper()
	asRoot(t)
	d = prepare(t, args...)
	config = filepath.Join(d.dir, "config-admin")
	if err := os.Mkdir(config, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("e2e", config, "tmpfs", 0, "size=200m,mode=755"); err != nil {
		if errors.Is(err, syscall.EPERM) {
			t.Skip("this machine does not let root mount")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.cleanup()
		if err := syscall.Unmount(config, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return d, config
}

// incompressible makes a template with four megabytes that do not compress: the space that PostgreSQL has already allocated does not hold many such.
func (d *deployment) incompressible() (big string) {
	t := d.t
	t.Helper()
	big = filepath.Join(d.dir, "big")
	if err := os.Mkdir(big, 0o755); err != nil {
		t.Fatal(err)
	}
	main, err := os.ReadFile(filepath.Join(d.dir, "process", "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 4<<20)
	rand.Read(noise)
	for name, data := range map[string][]byte{"main.tf": main, "noise.bin": noise} {
		if err := os.WriteFile(filepath.Join(big, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return big
}

// refusesPushes pushes a template again and again until a push is refused because the disk is full.
func (d *deployment) refusesPushes(big string) {
	t := d.t
	t.Helper()
	for n := range 10 {
		_, stderr, err := d.try("templates", "push", fmt.Sprintf("big%d", n), "-d", big, "-y")
		if err == nil {
			continue
		}
		t.Logf("refused with: %s", stderr)
		if !strings.Contains(stderr, "disk is full") {
			t.Errorf("push on a full disk: got %q, want the reason", stderr)
		}
		return
	}
	t.Error("nothing was refused while the disk was full")
}

// TestFullDisk: when the disk with the database and everything else fills up, the server refuses what it cannot store and reports the
// reason. It keeps running, and continues when there is space again, with all its data.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	d, config := onSmallDisk(t)
	d.begin()
	d.pushProcess()
	d.coder("create", "dev", "-t", "process", "-y")
	d.coder("ssh", "dev", "--", "echo kept > kept.txt")

	ballast := filepath.Join(config, "ballast")
	fill(t, ballast)
	big := d.incompressible()
	d.refusesPushes(big)
	// A build that runs now ends when there is space again, and not before its result is stored; or it reports why not.
	fill(t, ballast+"2")
	ctx, cancel := context.WithTimeout(t.Context(), 2*settle)
	defer cancel()
	third := d.speak(ctx, "third.log", d.command(ctx, "create", "third", "-t", "process", "-y"))
	defer func() {
		if t.Failed() {
			t.Logf("create third said:\n%s\nserver's log:\n%s", third.text(), d.logText())
		}
	}()
	// It is random which of its events is the first that does not fit: a log line, a checkpoint, or the result.
	testwait.Until(t, "the build of third has ended, or waits for what it did to be stored", func() error {
		ended := len(third.ended) > 0 || strings.Contains(third.text(), "Apply complete") || strings.Contains(d.fullLog(), "apply event of job")
		return testwait.Unless(ended, "the command has printed %q", third.text())
	})
	if d.cmd == nil || d.cmd.Process.Signal(syscall.Signal(0)) != nil {
		t.Fatalf("the server has ended\n%s", d.logText())
	}

	for _, name := range []string{ballast, ballast + "2"} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	testwait.Until(t, "the API answers", d.answers("/api/v2/users/me", http.StatusOK))
	buildErr := <-third.ended
	if buildErr != nil && !strings.Contains(third.text(), "error: ") {
		t.Errorf("create on a full disk: got %v, %q, want the reason", buildErr, third.text())
	}
	if out := d.coder("ssh", "dev", "--", "cat kept.txt"); out != "kept\n" {
		t.Errorf("ssh: got %q, want what was there", out)
	}
	d.coder("templates", "push", "after", "-d", big, "-y")
	d.coder("create", "second", "-t", "after", "-y")
	out := d.coder("list")
	if !strings.Contains(out, "dev") || !strings.Contains(out, "second") {
		t.Errorf("list: got %q, want dev and second", out)
	}
	// The third workspace can be used, or was never made.
	if strings.Contains(out, "third") {
		if buildErr != nil {
			d.coder("start", "third", "-y")
		}
		if out := d.coder("ssh", "third", "--", "echo here"); out != "here\n" {
			t.Errorf("ssh third: got %q", out)
		}
		d.coder("delete", "third", "-y")
	} else if buildErr == nil {
		t.Errorf("list: got %q, want third, whose build succeeded", out)
	}
	if err := d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	if out := d.coder("ssh", "dev", "--", "cat kept.txt"); out != "kept\n" {
		t.Errorf("ssh after a restart: got %q", out)
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for size := 1 << 20; size > 0; {
		if _, err := file.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoPostgreSQL checks that on a machine without PostgreSQL, the server's error message explains how to get it.
func TestNoPostgreSQL(t *testing.T) {
	t.Parallel()
	asRoot(t)
	d := prepare(t)
	program, err := exec.LookPath("terraform")
	if err != nil {
		if program, err = exec.LookPath("tofu"); err != nil {
			t.Fatal(err)
		}
	}
	if program, err = filepath.Abs(program); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(d.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(bin, filepath.Base(program))); err != nil {
		t.Fatal(err)
	}
	mount, err := exec.LookPath("mount")
	if err != nil {
		t.Fatal(err)
	}
	// Installed copies are hidden in a mount namespace of the server's own.
	hide := `for dir in /usr/lib/postgresql /usr/pgsql-* /usr/lib/postgresql* /usr/libexec/postgresql* /usr/local/pgsql /var/lib/codermesh; do
	if [ -d "$dir" ]; then "$0" -t tmpfs none "$dir" || exit 77; fi
done
exec "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "/bin/sh", "-c", hide, mount, coder, "server", "--shutdown-deadline", "1s")
	cmd.Env = append(d.env("admin"), "PATH="+bin)
	cmd.Dir = d.dir
	var said bytes.Buffer
	cmd.Stderr = &said
	err = cmd.Run()
	if text := said.String(); strings.Contains(text, "unshare failed") || cmd.ProcessState.ExitCode() == 77 {
		t.Skipf("this machine does not let root mount: %s", text)
	}
	if cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("coder server: got %v, want exit code 1", err)
	}
	for _, want := range []string{"error: PostgreSQL 13 or newer is not installed", "apt install postgresql", "--fetch-postgres", "--postgres-url"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("coder server said %q, want %q in it", &said, want)
		}
	}
}
