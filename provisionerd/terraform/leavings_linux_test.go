package terraform_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// leaveIPC is the command "leave-ipc" of this test's program: it makes objects with a key that outlive it, and prints their numbers.
func leaveIPC(args []string) error {
	key, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	const create = 0o1600 // IPC_CREAT
	name := append([]byte("cm-"+args[0]), 0)
	for kind, call := range map[string][5]uintptr{
		"shm":    {unix.SYS_SHMGET, uintptr(key), 1 << 20, create},
		"sem":    {unix.SYS_SEMGET, uintptr(key), 1, create},
		"msg":    {unix.SYS_MSGGET, uintptr(key), create},
		"mqueue": {unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT | unix.O_RDWR, 0o600},
	} {
		if _, _, errno := unix.Syscall6(call[0], call[1], call[2], call[3], call[4], 0, 0); errno != 0 && (kind != "mqueue" || errno != unix.EACCES) { // Landlock refuses queues
			return fmt.Errorf("%s: %w", kind, errno)
		}
	}
	return nil
}

// leaveQueue is the command "leave-queue" of this test's program: it makes a message queue with a name that outlives it.
func leaveQueue(args []string) error {
	name := append([]byte(args[0]), 0)
	if _, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0); errno != 0 {
		return fmt.Errorf("mq_open: %w", errno)
	}
	return nil
}

// unlinkQueue removes a message queue by its name.
func unlinkQueue(name string) error {
	text := append([]byte(name), 0)
	if _, _, errno := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&text[0])), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// ipcWithKey returns the kinds of System V objects that have a key.
func ipcWithKey(t *testing.T, key int) (kinds []string) {
	t.Helper()
	for _, kind := range []string{"shm", "sem", "msg"} {
		text, err := os.ReadFile("/proc/sysvipc/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 0 && fields[0] == fmt.Sprint(key) {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}

// leaveScript leaves files and objects wherever a job without namespaces can.
func leaveScript(name, open string, key int) string {
	return fmt.Sprintf(`
set -e
umask 077
mkdir /tmp/%[1]s; echo VICTIM-SECRET >/tmp/%[1]s/key; ln -s /etc /tmp/%[1]s/etc
echo VICTIM-SECRET >/dev/shm/%[1]s
echo VICTIM-SECRET >/var/tmp/%[1]s
cp /bin/sh %[2]s/%[1]s; chmod 4755 %[2]s/%[1]s
"$CODER_PROVISIONER_PROGRAM" leave-ipc %[3]d
`, name, open, key)
}

// accountIn returns the account that a job has printed.
func accountIn(t *testing.T, log string) (uid int) {
	t.Helper()
	_, after, _ := strings.Cut(log, "ACCOUNT=")
	if _, err := fmt.Sscan(after, &uid); err != nil {
		t.Fatalf("no account in %s", log)
	}
	return uid
}

// TestNothingIsLeft: without namespaces, a job and a workspace leave nothing in the host's temporary folders, in System V IPC or in message
// queues, and the next job of the slot has another account. What a job writes there counts as its own.
func TestNothingIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has accounts to give")
	}
	opts := withoutBubblewrap(t)
	opts.JobLimits = host.JobLimits{Disk: 24 << 20}
	e := newExecutor(t, func(o *terraform.Options) { *o = opts })
	open, theirs := openFile(t, "/tmp")
	name := "cm-" + strings.ReplaceAll(uuid.NewString(), "-", "")
	key := 1 + int(uuid.New().ID()&0x3fffffff)
	check := func(whose string) {
		t.Helper()
		for _, dir := range []string{"/tmp", "/dev/shm", "/var/tmp", open} {
			if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
				t.Errorf("%s left something in %s: %v", whose, dir, err)
			}
		}
		if kinds := ipcWithKey(t, key); len(kinds) > 0 {
			t.Errorf("%s left %v", whose, kinds)
		}
		if err := unlinkQueue("cm-" + fmt.Sprint(key)); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s left a message queue: %v", whose, err)
		}
		if _, err := os.Lstat(theirs); err != nil {
			t.Errorf("another's file: %v", err)
		}
	}
	log, result := runScript(t, e, leaveScript(name, open, key)+"echo ACCOUNT=$(id -u)\n")
	if result.GetError() != "" {
		t.Fatalf("%s\n%s", result.GetError(), log)
	}
	first := accountIn(t, log)
	check("the job")
	log, result = runScript(t, e, "echo ACCOUNT=$(id -u)\n")
	if second := accountIn(t, log); result.GetError() != "" || second == first {
		t.Errorf("the next job has the account %d, after %d: %s", second, first, result.GetError())
	}
	// Failed jobs end no other way, and the host's temporary folders are part of what a job may hold.
	_, result = runScript(t, e, "i=0; while :; do i=$((i+1)); head -c 4000000 /dev/zero >/tmp/"+name+"$i || exit 1; done\n")
	if !strings.Contains(result.GetError(), "more than 24 MiB of disk") {
		t.Errorf("a job filled /tmp: %s", result.GetError())
	}
	if left, err := filepath.Glob("/tmp/" + name + "*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	w, result := startProcess(t, e, opts.WorkspacesDir, "--env CODER_PROVISIONER_PROGRAM", leaveScript(name, open, key)+"echo left >~/left; exec sleep 600")
	if result.GetError() != "" {
		t.Fatal(result.GetError())
	}
	w.said(t, "left")
	w.remove(t, e)
	check("the workspace")
	// A killed daemon sweeps nothing; the next one does, for all that have ended. The daemon of another test may be the next one: it
	// has claimed these accounts then, and sweeps them before its first job.
	dir := filepath.Join("/var/tmp", name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(dir, first, first); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	next := newExecutor(t, func(o *terraform.Options) { *o = opts })
	testwait.Until(t, "what a killed daemon left is removed", func() error {
		_, err := os.Lstat(dir)
		return testwait.Unless(errors.Is(err, fs.ErrNotExist), "%s is still there: %v", dir, err)
	})
	if got := next.Isolation(); !strings.HasPrefix(got, "an account per job") {
		t.Errorf("isolation is %s", got)
	}
}

// withoutMounts marks the process in which TestNoQueueIsLeft attacks: it may not mount, and sees no message queues.
const withoutMounts = "CM_TEST_WITHOUT_MOUNTS"

// TestNoQueueIsLeft: where a provisioner can neither see message queues nor mount their file system, as in a container without /dev/mqueue, jobs
// and workspaces cannot make any.
func TestNoQueueIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has accounts to give")
	}
	if os.Getenv(withoutMounts) != "" {
		attackWithQueues(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const script = `while umount /dev/mqueue 2>/dev/null; do :; done; exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin -- "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", self, "-test.run", "^TestNoQueueIsLeft$", "-test.v")
	cmd.Env = append(os.Environ(), withoutMounts+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "\n--- PASS: TestNoQueueIsLeft") {
		t.Errorf("%v\n%s", err, out)
	}
}

// attackWithQueues lets a job and a workspace make message queues that nothing here could sweep.
func attackWithQueues(t *testing.T) {
	if sandbox.SweepsQueues() {
		t.Fatal("message queues can be seen here: the attack is wrong")
	}
	name := "cm-" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if err := errors.Join(leaveQueue([]string{name}), unlinkQueue(name)); err != nil {
		t.Fatalf("outside of a sandbox, no queue can be made: %v", err)
	}
	opts := withoutBubblewrap(t)
	e := newExecutor(t, func(o *terraform.Options) { *o = opts })
	attack := fmt.Sprintf("\"$CODER_PROVISIONER_PROGRAM\" leave-queue %s 2>&1 || echo refused\n", name)
	check := func(whose, said string) {
		t.Helper()
		if want := "mq_open: " + unix.EMFILE.Error(); !strings.Contains(said, want) {
			t.Errorf("%s is not refused a message queue with %q:\n%s", whose, want, said)
		}
		if err := unlinkQueue(name); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s left a message queue: %v", whose, err)
		}
	}
	log, result := runScript(t, e, attack)
	if result.GetError() != "" {
		t.Fatalf("%s\n%s", result.GetError(), log)
	}
	check("the job", log)
	w, result := startProcess(t, e, opts.WorkspacesDir, "--env CODER_PROVISIONER_PROGRAM", "{ "+strings.TrimSpace(attack)+"; } >~/tried; mv ~/tried ~/said; exec sleep 600")
	if result.GetError() != "" {
		t.Fatal(result.GetError())
	}
	check("the workspace", w.said(t, "said"))
	w.remove(t, e)
}
