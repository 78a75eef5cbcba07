package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// cgroupName returns the name of a slot's control groups.
func (h *Host) cgroupName(n int) string {
	sum := sha256.Sum256([]byte(h.runDir))
	return fmt.Sprintf("%x-%d", sum[:5], n)
}

// chooseCgroups determines whether control groups bound jobs here.
func (h *Host) chooseCgroups() {
	l, w := h.opts.JobLimits, h.opts.WorkspaceLimits
	if !h.isolation.confined() || l.Memory == 0 && l.Processes == 0 && l.CPUs == 0 && w.Memory == 0 &&
		w.Processes == 0 {
		return
	}
	group, err := openCgroup(h.cgroupName(-1), l)
	if group != nil {
		group.close()
	}
	if h.cgroups = err == nil; err != nil {
		unbound := "its processors"
		if !h.isolation.countsProcesses() {
			unbound += " and the number of its processes"
		}
		h.isolation.concerns = append(h.isolation.concerns,
			fmt.Sprintf("the memory of a job is bounded for each of its processes only, and %s not at all: %s",
				unbound, strings.ReplaceAll(err.Error(), "\n", ", ")))
	}
}

// ErrUnconfined returns the error of an executor that could run templates only unconfined.
func (h *Host) ErrUnconfined() error {
	return fault.New(fault.Unavailable, "templates cannot be confined on this machine: %s",
		strings.Join(h.isolation.concerns, "; ")).
		WithDetail("Install bubblewrap, run as root, or accept that templates can do what this account can with " +
			"--provisioner-isolation=none.")
}

// chooseIsolation determines what this host offers.
func (h *Host) chooseIsolation(ctx context.Context, mirrors []string) (isolation, error) {
	switch h.opts.Isolation {
	case "none":
		return isolation{none: true,
			concerns: []string{"templates can do what this account can: --provisioner-isolation is none"}}, nil
	case "", "auto":
	default:
		return isolation{}, fault.New(fault.Invalid, "isolation %q is unknown: use auto or none", h.opts.Isolation)
	}
	if err := errors.Join(h.checkDirs(), h.checkVisible()); err != nil {
		return isolation{}, err
	}
	i := isolation{abi: sandbox.LandlockABI(), mirrors: mirrors}
	if i.abi == 0 {
		i.concerns = append(i.concerns, "the kernel has no Landlock")
	}
	concern := func(err error) { i.concerns = append(i.concerns, err.Error()) }
	if os.Geteuid() == 0 {
		taken, err := takeAccounts()
		if err != nil {
			concern(err)
		}
		i.accounts = taken
	}
	bubblewrap, err := findBubblewrap()
	if err == nil {
		with := i
		with.bubblewrap = bubblewrap
		if err = h.tryIsolation(ctx, with); err == nil {
			return with, h.openFor(with)
		} else if late(err) {
			return i, err // what works on a machine that is less busy is not given up for less
		}
		err = fmt.Errorf("bubblewrap does not work here: %w", err)
		if reason := forbidsUserNamespaces("/"); reason != "" && os.Geteuid() != 0 {
			err = fmt.Errorf("this machine forbids user namespaces to ordinary accounts (%s), see "+
				"docs/provisioners.md: %w", reason, err)
		}
	}
	concern(err)
	if i.accounts != nil {
		err := errors.Join(h.checkShared(), h.openFor(i))
		if err == nil {
			if err = h.tryIsolation(ctx, i); late(err) {
				return i, err
			}
		}
		if err == nil {
			concern(errors.New("templates share /tmp and the unix sockets that everyone may use with this machine"))
			return i, nil
		}
		concern(fmt.Errorf("jobs cannot run under accounts of their own: %w", err))
		err = i.accounts.close()
		i.accounts = nil
		if err != nil {
			return i, err
		}
	}
	return i, nil
}

// forbidsUserNamespaces returns the setting of the kernel that keeps accounts other than root from creating user
// namespaces, or "". A machine may forbid them in other ways, too. root is the folder with proc in it.
func forbidsUserNamespaces(root string) string {
	for _, setting := range []struct{ name, forbids string }{
		{"user/max_user_namespaces", "0"},
		{"kernel/unprivileged_userns_clone", "0"},             // Debian's kernels
		{"kernel/apparmor_restrict_unprivileged_userns", "1"}, // Ubuntu, from 24.04 on
	} {
		text, err := os.ReadFile(filepath.Join(root, "proc/sys", setting.name))
		if err == nil && strings.TrimSpace(string(text)) == setting.forbids {
			return strings.ReplaceAll(setting.name, "/", ".") + " is " + setting.forbids
		}
	}
	return ""
}

// tryIsolation runs Terraform once the way that jobs will run it, unless that of h.opts.Like runs so.
func (h *Host) tryIsolation(ctx context.Context, i isolation) (err error) {
	if like := h.opts.Like; like != nil && like.isolation.bubblewrap == i.bubblewrap &&
		(like.isolation.accounts != nil) == (i.accounts != nil) {
		return nil
	}
	command := filepath.Join(h.runDir, "try")
	uid := 0
	if i.accounts != nil {
		uid = i.accounts.first
	}
	p := h.policyOf(i, uid, Grant{}, command+".pid")
	p.Env = []string{"CHECKPOINT_DISABLE=1", "PATH=" + os.Getenv("PATH")}
	if err := p.Store(command, h.launcher()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sandbox.Remove(command)) }()
	defer os.Remove(p.PidFile)
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, sandbox.Command(command), "version")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = sandbox.ChildAttr()
	cmd.Cancel = func() error { return kill(-cmd.Process.Pid, syscall.SIGKILL) } // all of the sandbox has the pipe
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fault.New(fault.Unavailable, "%s did not answer in its sandbox in %s: %w", h.program.path,
			versionTimeout, ctx.Err()).
			WithDetail("Start this program again when the machine is less busy.")
	}
	if err != nil {
		return fmt.Errorf("run %s in it: %w: %s", h.program.path, err, printable.Line(strings.TrimSpace(string(out))))
	}
	if !strings.Contains(string(out), h.program.Version) {
		return fmt.Errorf("run %s in it: it reports another version: %s", h.program.path,
			printable.Line(strings.TrimSpace(string(out))))
	}
	return nil
}

// late reports whether a program did not answer in time, or was not waited for.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// checkDirs rejects daemon folders inside a folder that belongs to workspaces.
func (h *Host) checkDirs() error {
	for _, dir := range []string{h.runDir, h.opts.CacheDir} {
		if below(dir, h.opts.WorkspacesDir) {
			return fault.New(fault.Invalid, "the folder %s lies in %s, which belongs to workspaces: choose another",
				dir, h.opts.WorkspacesDir)
		}
	}
	return nil
}

// checkShared rejects daemon folders that lie where templates may write, or that templates cannot reach, if templates
// share the host's view of folders.
func (h *Host) checkShared() error {
	for _, dir := range []string{h.runDir, h.opts.CacheDir, h.opts.WorkspacesDir} {
		for _, open := range temporaryDirs {
			if below(dir, open) {
				return fmt.Errorf("the folder %s lies in %s, where templates write", dir, open)
			}
		}
	}
	for _, name := range []string{h.runDir, h.program.path, h.opts.Worker[0], h.opts.CacheDir, h.opts.WorkspacesDir} {
		if obstacle, ok := reachable(name); !ok {
			return fmt.Errorf("the accounts of jobs cannot reach %s, because of %s", name, obstacle)
		}
	}
	return nil
}

// openFor gives the accounts of jobs access to what they need.
func (h *Host) openFor(i isolation) error {
	if i.accounts == nil {
		return nil
	}
	for _, dir := range []string{filepath.Join(h.opts.CacheDir, "templates"), h.opts.WorkspacesDir} {
		if err := os.Chmod(dir, 0o711); err != nil {
			return fmt.Errorf("open %s: %w", dir, err)
		}
	}
	return nil
}

// SetUp finds what confines jobs of program, and sets aside what a killed predecessor left. cliConfig is the file with
// Terraform's CLI configuration for jobs, mirrors are folders that its providers are linked from. The error is a fault
// if jobs would run unconfined and mayUnconfined does not allow that.
func (h *Host) SetUp(
	ctx context.Context, program Program, cliConfig string, mirrors []string, mayUnconfined bool,
) (err error) {
	h.program = program
	h.unpack()
	if h.isolation, err = h.chooseIsolation(ctx, mirrors); err != nil {
		return err
	}
	if !h.MayRun() && !mayUnconfined {
		return h.ErrUnconfined()
	}
	h.chooseCgroups()
	workspaces := ""
	if !h.isolation.confined() {
		workspaces = h.opts.WorkspacesDir
	}
	h.baseEnv = baseEnv(h.opts.ExtraEnv, cliConfig, workspaces)
	if !h.isolation.none {
		files := h.hostFiles()
		files.guideGit(h.baseEnv)
	}
	if err := h.putAside(); err != nil {
		return err
	}
	if a := h.isolation.accounts; a != nil {
		shared := h.isolation.bubblewrap == ""
		// Executors of versions that make no marks may have used the accounts of this process, until its first executor
		// has searched.
		if err := a.sweepDead(h.opts.Worker[0], shared, shared && h.opts.Like == nil); err != nil {
			h.log.Warn("files of earlier jobs remain", "err", err)
		}
	}
	return nil
}
