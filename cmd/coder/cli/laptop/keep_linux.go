package laptop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/memory"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tunnel"
)

const deviceName = "coder0"

// KeepOptions are what the keeper needs.
type KeepOptions struct {
	Dir    string     // of the state and the control socket, root's
	User   *user.User // whose programs reach workspaces
	Args   []string   // of this program, to start the server
	Ready  *os.File   // the server writes to it when it is ready; nil: it does not
	Logger *slog.Logger
}

// What the server finds in its environment, and as open files. The lock comes first: the kernel closes the files of a
// process that was killed from the last to the first, so that the device is free once the lock is.
const (
	setupEnv  = "CODER_CONNECT_SETUP"
	lockFD    = 3
	deviceFD  = 4
	controlFD = 5
	readyFD   = 6
)

// Keep connects the machine, runs the server as the user until it ends or ctx does, and takes everything back. It needs
// root's rights.
func Keep(ctx context.Context, opts KeepOptions) (err error) {
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	locks, err := lock(ctx, opts.Dir)
	if err != nil {
		return err
	}
	defer locks.close()
	if err := restore(ctx, opts.Dir); err != nil {
		return fmt.Errorf("take back what an earlier run has left: %w", err)
	}
	if err := locks.give(opts.User); err != nil {
		return err
	}
	k := &keeper{KeepOptions: opts, lock: locks.server}
	k.setup = Setup{Device: deviceName, Machine: tailnet.Addr(uuid.New()), NameServer: NameServer}
	device, err := tunnel.Create(deviceName)
	if err != nil {
		return fault.New(fault.Unavailable, "%w", err).
			WithDetail("Is the module tun loaded, and may this process administer the network?")
	}
	defer func() {
		device.Close()
		err = errors.Join(err, restore(context.WithoutCancel(ctx), opts.Dir))
	}()
	if err := k.routes(ctx); err != nil {
		return err
	}
	if err := k.resolver(ctx); err != nil {
		return err
	}
	return k.serve(ctx, device)
}

// Restore takes back what a keeper that was killed has left behind, once the server has ended, too. It fails while a
// keeper runs.
func Restore(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { // it goes when the machine starts again
		return fmt.Errorf("make folder: %w", err)
	}
	locks, err := lock(ctx, dir)
	if err != nil {
		return err
	}
	defer locks.close()
	return restore(ctx, dir)
}

// Left reports whether a keeper that was killed has left something behind, if none runs now.
func Left(dir string) bool {
	if _, err := os.Stat(statePath(dir)); err == nil {
		return true
	}
	text, err := os.ReadFile(resolvConf)
	return err == nil && ours(string(text))
}

// Down ends coder connect, and returns when everything was taken back. It returns ErrDown if the keeper was killed and
// has left something.
func Down(ctx context.Context, dir string) error {
	conn, err := request(ctx, dir, commandDown)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, path := range []string{keeperLock(dir), serverLock(dir)} {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		err = flock(ctx, file, syscall.LOCK_SH)
		file.Close()
		if err != nil {
			return err
		}
	}
	if Left(dir) {
		return ErrDown
	}
	return nil
}

type keeper struct {
	KeepOptions
	lock  *os.File // which the server holds, too
	setup Setup
	state state
}

// serve runs the server as the user, until it ends.
func (k *keeper) serve(ctx context.Context, device *os.File) error {
	os.Remove(socket(k.Dir)) // of a keeper that was killed
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket(k.Dir)})
	if err != nil {
		return err
	}
	defer listener.Close()
	control, err := listener.File()
	if err != nil {
		return err
	}
	defer control.Close()
	credential, err := credentialOf(k.User)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(socket(k.Dir), 0o600), os.Chown(socket(k.Dir), int(credential.Uid), int(credential.Gid))); err != nil {
		return err
	}
	setup, err := json.Marshal(struct {
		Setup
		Original string `json:"original"`
	}{k.setup, k.setup.Original})
	if err != nil {
		return err
	}
	// The name of the program works whatever the user may read.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", k.Args...)
	cmd.Env = append(environment(os.Environ(), k.User), setupEnv+"="+string(setup))
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{k.lock, device, control}
	if k.Ready != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, k.Ready)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if os.Geteuid() != int(credential.Uid) {
		cmd.SysProcAttr.Credential = credential
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	runtime.LockOSThread() // the end of the thread that started the server would look like this process's to the kernel
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	memory.Free() // this process only waits from now on
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// credentialOf returns the ids of a user's processes.
func credentialOf(u *user.User) (*syscall.Credential, error) {
	ids := []string{u.Uid, u.Gid}
	groups, err := u.GroupIds()
	if err != nil {
		groups = nil // a user whom only the network knows
	}
	var numbers []uint32
	for _, id := range append(ids, groups...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("the user %s has the id %q", u.Username, id)
		}
		numbers = append(numbers, uint32(n))
	}
	return &syscall.Credential{Uid: numbers[0], Gid: numbers[1], Groups: numbers[2:]}, nil
}

// environment returns the environment of a user's processes: without what belongs to root or to sudo.
func environment(of []string, u *user.User) []string {
	kept := []string{"HOME=" + u.HomeDir, "USER=" + u.Username, "LOGNAME=" + u.Username}
	for _, entry := range of {
		name, _, _ := strings.Cut(entry, "=")
		switch {
		case name == "HOME", name == "USER", name == "LOGNAME", name == stageEnv, name == setupEnv:
		case strings.HasPrefix(name, "SUDO_"), strings.HasPrefix(name, "XDG_"):
		default:
			kept = append(kept, entry)
		}
	}
	return kept
}

// Inherited returns what the keeper has left for the server in this process: see ServeOptions.
func Inherited() (setup Setup, device int, control net.Listener, ready func(), err error) {
	var given struct {
		Setup
		Original string `json:"original"`
	}
	if err := json.Unmarshal([]byte(os.Getenv(setupEnv)), &given); err != nil {
		return setup, 0, nil, nil, fmt.Errorf("read %s: %w", setupEnv, err)
	}
	setup = given.Setup
	setup.Original = given.Original
	syscall.CloseOnExec(lockFD) // it stays open until this process ends
	file := os.NewFile(controlFD, "control")
	defer file.Close()
	if control, err = net.FileListener(file); err != nil {
		return setup, 0, nil, nil, fmt.Errorf("take over the control socket: %w", err)
	}
	ready = func() {}
	if pipe := os.NewFile(readyFD, "ready"); pipe != nil {
		ready = func() {
			_, _ = pipe.Write([]byte{1}) // fails if there is none, or the command that waits has left
			pipe.Close()
		}
	}
	return setup, deviceFD, control, ready, nil
}

// UserFor returns the user whose programs shall reach workspaces: the named one, or who has called sudo, or this
// process's.
func UserFor(name string) (*user.User, error) {
	switch id := os.Getenv("SUDO_UID"); {
	case name != "":
		return user.Lookup(name)
	case id != "":
		return user.LookupId(id)
	}
	return user.Current()
}
