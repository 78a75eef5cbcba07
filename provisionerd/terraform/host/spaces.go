package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/scratch"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/ask"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// spaces are the workspaces that are processes of this host. Each has a folder, which is the daemon's:
//
//	<workspaces>/<id>/home       its HOME, the one folder that it may write; its owner is the workspace's account
//	<workspaces>/<id>/agent.log  what the process prints; its older half is removed when it is full
//	<workspaces>/<id>/etc        what it sees as /etc, with its account's name
//	<workspaces>/<id>/process    the process that runs, as it is noted for slots
//	<workspaces>/<id>/sandbox    its sandbox, with secrets of the workspace: there only while the process starts
//
// The process outlives its build and the daemon. It has the namespaces, the Landlock rules and the filter of a job,
// with an account and temporary folders of its own; debuggers work in it.
type spaces struct{ host *Host }

// spaceAccount is the name of a workspace's account in its sandbox.
const spaceAccount = "coder"

// patience is how long a workspace's process may take to end before it is killed.
const patience = 10 * time.Second

func (s spaces) dir(id uuid.UUID) string {
	return filepath.Join(s.host.opts.WorkspacesDir, id.String())
}

// start starts the workspace's process, after ending one that runs.
func (s spaces) start(ctx context.Context, id uuid.UUID, r ask.Request) (err error) {
	if err := s.stop(id); err != nil {
		return err
	}
	limits, err := bounded(r.Limits, s.host.opts.WorkspaceLimits)
	if err != nil {
		return err
	}
	dir := s.dir(id)
	home := filepath.Join(dir, "home")
	if err := s.takeFolder(dir); err != nil {
		return err
	}
	uid, err := s.account(id, home)
	if err != nil {
		return err
	}
	g := Grant{Write: []string{home}, workspace: true, limits: limits}
	name := spaceAccount
	if s.host.isolation.bubblewrap != "" {
		if g.etc, err = s.host.writeEtc(filepath.Join(dir, "etc"),
			account{name, home, cmp.Or(r.Env["SHELL"], "/bin/sh"), uid}); err != nil {
			return err
		}
	} else if current, err := user.Current(); err == nil {
		name = current.Username
	}
	program := r.Args[0]
	if !strings.Contains(program, "/") {
		if program, err = exec.LookPath(program); err != nil {
			return fmt.Errorf("find %s: %w", r.Args[0], err)
		}
	}
	if g.cgroup, err = s.cgroup(id, limits); err != nil {
		return err
	}
	p := s.host.policyOf(s.host.isolation, uid, g, filepath.Join(dir, "process"))
	p.Exec, p.Args, p.Dir, p.Env = program, r.Args[1:], home, spaceEnviron(r.Env, s.host.baseEnv, name, home)
	command := filepath.Join(dir, "sandbox")
	defer func() { err = errors.Join(err, sandbox.Remove(command)) }()
	if err := p.Store(command, s.host.launcher()); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "agent.log"), os.O_RDWR|os.O_APPEND|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	fmt.Fprintf(log, "\n--- started %s\n", time.Now().Format(time.RFC3339))
	info, err := log.Stat()
	if err != nil {
		return fmt.Errorf("look at log: %w", err)
	}
	// Nothing that the job asked for reaches the start of the sandbox but through the policy.
	cmd := exec.CommandContext(ctx, sandbox.Command(command))
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{}, log, log
	// The sandbox leaves the process behind and exits.
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start workspace: %w: %s", err, lastWords(log, info.Size()))
	}
	return nil
}

// spaceEnviron returns what a workspace's process sees: the requested variables, and those of its account.
func spaceEnviron(requested, base map[string]string, account, home string) []string {
	env := map[string]string{"PATH": base["PATH"], "LANG": "C.UTF-8", "SHELL": "/bin/sh"}
	for _, name := range []string{"LANG", skipSystemGit} {
		if value := base[name]; value != "" {
			env[name] = value
		}
	}
	maps.Copy(env, requested)
	env["HOME"], env["USER"], env["LOGNAME"] = home, account, account
	return Environ(env)
}

// lastWords returns the end of what a log has from an offset on, in one line: who starts a workspace cannot read the
// log.
func lastWords(log *os.File, from int64) string {
	text, err := io.ReadAll(io.NewSectionReader(log, from, maxLastWords))
	if err != nil {
		return err.Error()
	}
	words := strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "; ")
	return printable.Line(cmp.Or(words, "it printed nothing"))
}

// maxLastWords bounds in bytes what an error cites.
const maxLastWords = 2 << 10

// takeFolder makes the workspace's folder. If an earlier version left it to the workspace's account, it gives the
// folder to the daemon.
func (s spaces) takeFolder(dir string) error {
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make workspace's folder: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at workspace's folder: %w", err)
	}
	stat, ok := statusOf(info)
	if !ok || !info.IsDir() {
		return fmt.Errorf("%s is not a folder: remove it", dir)
	}
	if stat.uid == os.Geteuid() {
		return os.Chmod(dir, 0o711)
	}
	if err := errors.Join(os.Lchown(dir, os.Geteuid(), os.Getegid()), os.Chmod(dir, 0o711)); err != nil {
		return fmt.Errorf("take workspace's folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("take workspace's folder: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == "home" && entry.IsDir() {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("take workspace's folder: %w", err)
		}
	}
	return nil
}

// account makes the workspace's home folder if necessary, and returns the account that owns it, or 0 for the daemon's
// own.
func (s spaces) account(id uuid.UUID, home string) (int, error) {
	if err := os.Mkdir(home, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("make home folder: %w", err)
	}
	a := s.host.isolation.accounts
	if a == nil {
		return 0, nil
	}
	owner, err := ownerOf(home)
	if err != nil || a.space(owner) {
		return owner, err
	}
	uid, err := s.freeAccount(id)
	if err != nil {
		return 0, err
	}
	// The folder itself comes last: its owner shows that the rest is done.
	if err := giveTree(home, owner, uid); err != nil {
		return 0, err
	}
	return uid, nil
}

func ownerOf(dir string) (int, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", dir, err)
	}
	stat, ok := statusOf(info)
	if !ok || !info.IsDir() {
		return 0, fmt.Errorf("%s is not a folder", dir)
	}
	return stat.uid, nil
}

// freeAccount chooses an account that no other workspace on this host has.
func (s spaces) freeAccount(id uuid.UUID) (int, error) {
	a := s.host.isolation.accounts
	entries, err := os.ReadDir(s.host.opts.WorkspacesDir)
	if err != nil {
		return 0, fmt.Errorf("choose account: %w", err)
	}
	used := map[int]bool{}
	for _, entry := range entries {
		if owner, err := ownerOf(filepath.Join(s.host.opts.WorkspacesDir, entry.Name(), "home")); err == nil {
			used[owner] = true
		}
	}
	size := a.beyond - a.spaces
	first := int(crc32.ChecksumIEEE(id[:])) % size
	for n := range size {
		if uid := a.spaces + (first+n)%size; !used[uid] {
			return uid, nil
		}
	}
	return 0, errors.New("all accounts for workspaces are in use on this host")
}

// giveTree changes the owner of dir and of everything in it that belongs to from. No process of from may run.
func giveTree(dir string, from, to int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("give home folder: %w", err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		stat, ok := statusOf(info)
		// Another link to the file may lie outside.
		if !ok || stat.uid != from || !info.IsDir() && stat.links > 1 {
			return nil
		}
		return root.Lchown(name, to, to)
	})
	if err := errors.Join(err, os.Lchown(dir, to, to)); err != nil {
		return fmt.Errorf("give home folder: %w", err)
	}
	return nil
}

// stop ends the workspace's process and everything that it started. There may be none: it has ended, or the host was
// restarted.
func (s spaces) stop(id uuid.UUID) error {
	dir := s.dir(id)
	name := filepath.Join(dir, "process")
	owner, err := ownerOf(dir)
	if err != nil {
		return nil // without the folder no process was ever started
	}
	p, err := readProcess(name)
	if owner != os.Geteuid() || err != nil {
		old, oldErr := readOldProcess(name, owner) // our own notes lie in a folder of ours
		switch {
		case oldErr == nil:
			p = old
		case owner != os.Geteuid() || errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF):
			return nil // no process was started
		default:
			return fmt.Errorf("find the workspace's process: %w: end it, and remove that file", err)
		}
	}
	ask := func() bool {
		if p.Namespaces {
			return p.Signal(syscall.SIGTERM)
		}
		return !p.Alive() || kill(-p.PID, syscall.SIGTERM) == nil
	}
	deadline := time.Now().Add(patience)
	for asked := false; p.Alive() && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if !asked {
			asked = ask()
		}
	}
	sandbox.KillGroup(p)
	defer s.sweep(filepath.Join(dir, "home"))
	if uid, err := ownerOf(filepath.Join(dir, "home")); err == nil && !p.Namespaces &&
		s.host.isolation.accounts != nil && s.host.isolation.accounts.space(uid) {
		if err := sandbox.KillAccount(s.host.opts.Worker[0], uid); err != nil {
			return err
		}
	}
	if err := s.leaveCgroup(id); err != nil {
		return err
	}
	if owner != os.Geteuid() {
		return nil
	}
	return RemoveFile(name)
}

// sweep removes what the workspace's processes left in temporary folders, in System V IPC and in message queues.
// Processes under bubblewrap had their own, which ended with them. Without an account of its own only the folders of
// killed agents are known to be the workspace's.
func (s spaces) sweep(home string) {
	uid, err := ownerOf(home)
	if err != nil || s.host.isolation.bubblewrap != "" {
		return
	}
	if a := s.host.isolation.accounts; a != nil && a.space(uid) {
		if err := a.leavings(uid).Sweep(); err != nil {
			s.host.log.Warn("files of a workspace remain", "err", err)
		}
		return
	}
	for _, parent := range temporaryDirs {
		if err := scratch.Sweep(parent, uid); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.host.log.Warn("temporary folders of a workspace remain", "err", err)
		}
	}
}

// readOldProcess reads the note of a starter of an earlier version: number and start time. The workspace owned that
// file, so it may name only a process of that account.
func readOldProcess(name string, owner int) (sandbox.Process, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|noFollow|syscall.O_NONBLOCK, 0)
	if err != nil {
		return sandbox.Process{}, fmt.Errorf("read process note: %w", err)
	}
	defer file.Close()
	var pid int
	var began uint64
	if _, err := fmt.Fscan(file, &pid, &began); err != nil || pid <= 1 {
		return sandbox.Process{}, fmt.Errorf("read process note: %w", err)
	}
	p, err := sandbox.Identify(pid)
	if err != nil {
		return p, err
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return p, fmt.Errorf("read process: %w", err)
	}
	if !strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", owner)) || p.Start != began {
		return p, errors.New("read process: it is another one")
	}
	return p, nil
}

// remove ends the workspace's process and deletes its folder.
func (s spaces) remove(id uuid.UUID) error {
	if err := s.stop(id); err != nil {
		return err
	}
	// even if no process was found, as after a restart of the host: another workspace may get the account
	s.sweep(filepath.Join(s.dir(id), "home"))
	if err := os.RemoveAll(s.dir(id)); err != nil {
		return fmt.Errorf("remove workspace's folder: %w", err)
	}
	return nil
}

// cgroup returns the control groups of a workspace with their bounds, or nil without control groups.
func (s spaces) cgroup(id uuid.UUID, l WorkspaceLimits) (*cgroup, error) {
	if !s.host.cgroups {
		return nil, nil
	}
	return openCgroup("workspace-"+id.String(), JobLimits{Memory: l.Memory, Processes: l.Processes})
}

// leaveCgroup removes the control groups of a workspace after its processes have ended, and ends those that have not.
func (s spaces) leaveCgroup(id uuid.UUID) error {
	group, err := s.cgroup(id, WorkspaceLimits{})
	if group == nil || err != nil {
		return err
	}
	if err := group.kill(); err != nil {
		return err
	}
	return group.leave(patience)
}

// StopWorkspace ends the process of a workspace on this host, and everything that it started. There may be none.
func (h *Host) StopWorkspace(id uuid.UUID) error { return spaces{h}.stop(id) }

// RemoveWorkspace ends the process of a workspace on this host, and deletes its folder.
func (h *Host) RemoveWorkspace(id uuid.UUID) error { return spaces{h}.remove(id) }
