package laptop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/memory"
	"github.com/codermesh/codermesh/v2/internal/meshdns"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tunnel"
)

const (
	deviceName = "coder0"
	// table has the routes, apart from those of other programs, and priority is where the kernel asks it: before the main table, and before the
	// tables of other VPNs, which are asked for all addresses.
	table, priority = "20552", "5200"
	resolvConf      = "/etc/resolv.conf"
	resolved        = "systemd-resolved"
	// maxSaid bounds what is shown of what the keeper has said, in bytes.
	maxSaid = 4 << 10
)

// KeepOptions are what the keeper needs.
type KeepOptions struct {
	Dir    string     // of the state and the control socket, root's
	User   *user.User // whose programs reach workspaces
	Args   []string   // of this program, to start the server
	Ready  *os.File   // the server writes to it when it is ready; nil: it does not
	Logger *slog.Logger
}

// What the server finds in its environment, and as open files. The lock comes first: the kernel closes the files of a process that was killed
// from the last to the first, so that the device is free once the lock is.
const (
	setupEnv  = "CODER_CONNECT_SETUP"
	lockFD    = 3
	deviceFD  = 4
	controlFD = 5
	readyFD   = 6
)

// state is what the keeper has changed on the machine, except the resolver's file, which says that for itself. It is written before it changes
// anything.
type state struct {
	Rules [][]string `json:"rules"` // arguments of ip -6 rule del
}

// Keep connects the machine, runs the server as the user until it ends or ctx does, and takes everything back. It needs root's rights.
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
		return fault.New(fault.Unavailable, "%w", err).WithDetail("Is the module tun loaded, and may this process administer the network?")
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

// Restore takes back what a keeper that was killed has left behind, once the server has ended, too. It fails while a keeper runs.
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

// Down ends coder connect, and returns when everything was taken back. It returns ErrDown if the keeper was killed and has left something.
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

func statePath(dir string) string  { return filepath.Join(dir, "state.json") }
func keeperLock(dir string) string { return filepath.Join(dir, "lock") }
func serverLock(dir string) string { return filepath.Join(dir, "server.lock") }

// locks are held while coder connect is up. The keeper's says that there is one. The server's is also held by the server, so that it says whether
// the device is in use, even after the keeper was killed.
type locks struct{ keeper, server *os.File }

// lock keeps a second keeper away until close. It waits for the end of a server whose keeper was killed.
func lock(ctx context.Context, dir string) (l locks, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.keeper, err = os.OpenFile(keeperLock(dir), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return l, err
	}
	if l.server, err = os.OpenFile(serverLock(dir), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return l, err
	}
	if syscall.Flock(int(l.keeper.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return l, fault.New(fault.Conflict, "coder connect is already up on this machine").WithDetail("End it first: sudo coder connect down")
	}
	return l, flock(ctx, l.server, syscall.LOCK_EX)
}

// flock waits for a lock until ctx ends. The caller must close the file then.
func flock(ctx context.Context, file *os.File, how int) error {
	// A descriptor of its own, which the caller cannot close: it has the same lock.
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate descriptor: %w", err)
	}
	locked := make(chan error, 1)
	go func() {
		err := error(syscall.EINTR)
		for errors.Is(err, syscall.EINTR) {
			err = syscall.Flock(fd, how)
		}
		_ = syscall.Close(fd)
		locked <- err
	}()
	select {
	case err := <-locked:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// give lets the user's coder connect down wait for the locks. Other users, who could keep coder connect from starting with them, cannot open them.
func (l locks) give(u *user.User) error {
	credential, err := credentialOf(u)
	if err != nil {
		return err
	}
	uid, gid := int(credential.Uid), int(credential.Gid)
	return errors.Join(l.keeper.Chown(uid, gid), l.server.Chown(uid, gid))
}

func (l locks) close() {
	for _, file := range []*os.File{l.server, l.keeper} {
		if file != nil {
			file.Close()
		}
	}
}

type keeper struct {
	KeepOptions
	lock  *os.File // which the server holds, too
	setup Setup
	state state
}

// store writes the state, so that it survives this process.
func (k *keeper) store() error {
	text, err := json.Marshal(k.state)
	if err != nil {
		return err
	}
	return writeFile(statePath(k.Dir), text, 0o600)
}

// writeFile replaces a file, at once.
func writeFile(path string, text []byte, mode fs.FileMode) error {
	next := path + ".coder-connect"
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		os.Remove(next)
	}
	return err
}

// routes makes the device and its routes. They exist for the user's programs only, but for the way to the name server.
func (k *keeper) routes(ctx context.Context) error {
	if routes, err := run(ctx, "ip", "-6", "-j", "route", "show", "table", "all"); err == nil {
		if k.setup.Overlaps, err = overlaps(routes, tailnet.Prefix, deviceName); err != nil {
			k.Logger.WarnContext(ctx, "cannot look for overlapping routes", "err", err)
		}
	}
	rule := func(to string, more ...string) []string {
		return append([]string{"to", to, "iif", "lo", "lookup", table, "priority", priority}, more...)
	}
	uid := k.User.Uid
	k.state.Rules = [][]string{rule(NameServer.String()), rule(tailnet.Prefix.String(), "uidrange", uid+"-"+uid)}
	if err := k.store(); err != nil {
		return err
	}
	commands := [][]string{
		{"addr", "add", k.setup.Machine.String() + "/128", "dev", deviceName, "nodad"},
		{"link", "set", deviceName, "up"},
		{"route", "add", tailnet.Prefix.String(), "dev", deviceName, "src", k.setup.Machine.String(), "table", table},
	}
	for _, r := range k.state.Rules {
		commands = append(commands, append([]string{"rule", "add"}, r...))
	}
	for _, c := range commands {
		if _, err := run(ctx, "ip", append([]string{"-6"}, c...)...); err != nil {
			return fmt.Errorf("configure the network: %w", err)
		}
	}
	return nil
}

// run runs a program and returns its output.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s %s: %s", name, strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}

// resolver makes the machine's resolver ask the name server: systemd-resolved for the names of workspaces only, others for all.
func (k *keeper) resolver(ctx context.Context) error {
	if _, err := os.Stat("/run/systemd/resolve/io.systemd.Resolve"); err == nil {
		for _, args := range resolvedCommands(deviceName) {
			if _, err := run(ctx, "resolvectl", args...); err != nil {
				return fmt.Errorf("configure systemd-resolved: %w", err)
			}
		}
		k.setup.Resolver = resolved
		return nil
	}
	k.setup.Resolver = resolvConf
	text, err := os.ReadFile(resolvConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	link, err := os.Readlink(resolvConf)
	if err != nil {
		link = "" // a file
	}
	if k.setup.Original = linked(link); link == "" {
		k.setup.Original = filepath.Join(k.Dir, "resolv.conf")
		if err := writeFile(k.setup.Original, text, 0o644); err != nil {
			return err
		}
	}
	return replace(resolvConf, []byte(withServer(string(text), link, NameServer)))
}

// linked returns the file to which a symbolic link at resolvConf leads. Its owner, such as resolvconf, goes on to write the name servers of the present
// network to it.
func linked(link string) string {
	if filepath.IsAbs(link) {
		return link
	}
	return filepath.Join(filepath.Dir(resolvConf), link)
}

// replace replaces a file, or what it says if it cannot be replaced because something is mounted on it, as in containers.
func replace(path string, text []byte) error {
	err := writeFile(path, text, 0o644)
	if errors.Is(err, syscall.EBUSY) {
		return os.WriteFile(path, text, 0o644)
	}
	return err
}

// restore takes back what the state and the resolver's file say. The routes and what systemd-resolved knows have ended with the device.
func restore(ctx context.Context, dir string) error {
	if err := restoreResolver(); err != nil {
		return fmt.Errorf("restore %s: %w", resolvConf, err)
	}
	text, err := os.ReadFile(statePath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var st state
	if err := json.Unmarshal(text, &st); err != nil {
		return fmt.Errorf("read %s: %w", statePath(dir), err)
	}
	for _, rule := range st.Rules {
		_, _ = run(ctx, "ip", append([]string{"-6", "rule", "del"}, rule...)...) // it may have been removed, or never added
	}
	os.Remove(socket(dir))
	return os.Remove(statePath(dir))
}

// restoreResolver restores the resolver's file, unless another program has replaced ours.
func restoreResolver() error {
	text, err := os.ReadFile(resolvConf)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ours(string(text)) {
		return nil
	}
	if err != nil {
		return err
	}
	original, link := withoutServer(string(text))
	if link != "" {
		next := resolvConf + ".coder-connect"
		os.Remove(next)
		if err := os.Symlink(link, next); err != nil {
			return err
		}
		err := os.Rename(next, resolvConf)
		if err == nil || !errors.Is(err, syscall.EBUSY) {
			return err
		}
		os.Remove(next)
	}
	return replace(resolvConf, []byte(original))
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

// Stage is what this process is for.
type Stage string

const (
	Up     Stage = ""       // the command of the user
	Keeper Stage = "keeper" // the keeper, which the command has started and left
	Server Stage = "server"

	stageEnv = "CODER_CONNECT_STAGE"
)

// CurrentStage returns what this process is for.
func CurrentStage() Stage {
	if os.Getenv(setupEnv) != "" {
		return Server
	}
	return Stage(os.Getenv(stageEnv))
}

// Background starts the keeper in the background, and returns when the server is ready, or with what it has said when it
// ended. It waits until then, or until ctx ends, and writes to progress what they say if that takes longer than usual.
func Background(ctx context.Context, dir string, args []string, progress io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before, err := log.Stat()
	if err != nil {
		return err
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), stageEnv+"="+string(Keeper))
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	if connected(ready, &news{log: log, from: before.Size()}, progress) {
		return cmd.Process.Release()
	}
	_ = cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	said := make([]byte, maxSaid)
	n, err := log.ReadAt(said, before.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return fault.New(fault.Unavailable, "cannot connect").WithDetail("%s", strings.TrimSpace(string(said[:n])))
}

// usual is how long it takes to connect, at most, unless something is wrong.
const usual = 3 * time.Second

// connected waits until the keeper reports that the server is ready, or ends. It tells what they say after the usual time.
func connected(ready io.Reader, said *news, progress io.Writer) bool {
	answer := make(chan int, 1)
	go func() {
		n, _ := ready.Read(make([]byte, 1)) // it ends without a byte if the keeper ends
		answer <- n
	}()
	slow := time.NewTimer(usual)
	defer slow.Stop()
	for told := false; ; {
		select {
		case n := <-answer:
			return n == 1
		case <-slow.C:
			if !told {
				fmt.Fprintln(progress, "Still connecting. Interrupt to give up.")
			}
			told = true
			fmt.Fprint(progress, said.next())
			slow.Reset(time.Second)
		}
	}
}

// news are the lines of a log that were not read yet.
type news struct {
	log  io.ReaderAt
	from int64
}

// next returns the complete lines that were written since the last call, maxSaid bytes of them at most.
func (n *news) next() string {
	text := make([]byte, maxSaid)
	count, _ := n.log.ReadAt(text, n.from) // at its end the log has no more lines yet
	end := bytes.LastIndexByte(text[:count], '\n') + 1
	if end == 0 && count == maxSaid {
		end = count
	}
	n.from += int64(end)
	return string(text[:end])
}

// KeeperReady returns the file that Background waits for.
func KeeperReady() *os.File { return os.NewFile(3, "ready") }

// UserFor returns the user whose programs shall reach workspaces: the named one, or who has called sudo, or this process's.
func UserFor(name string) (*user.User, error) {
	switch id := os.Getenv("SUDO_UID"); {
	case name != "":
		return user.Lookup(name)
	case id != "":
		return user.LookupId(id)
	}
	return user.Current()
}

// resolvedCommands returns what makes systemd-resolved ask the name server about workspaces, and about nothing else. The zone coder is not signed,
// and the server is on this machine, whatever is set for others.
func resolvedCommands(device string) [][]string {
	return [][]string{
		{"dns", device, NameServer.String()},
		{"domain", device, "~coder", "~" + strings.TrimSuffix(meshdns.ReverseZone(tailnet.Prefix), ".")},
		{"default-route", device, "false"},
		{"dnssec", device, "no"},
		{"dnsovertls", device, "no"},
	}
}
