package host

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// Options are what a host needs of an executor's options. The fields of the same names there say what they mean.
type Options struct {
	Logger          *slog.Logger
	CacheDir        string
	RunDir          string
	WorkspacesDir   string
	Worker          []string
	Launcher        func(dir string) (string, error)
	Isolation       string
	DockerSocket    string
	ExtraEnv        []string
	Readable        []string
	Files           []JobFile
	Hidden          []string
	ServiceAccount  string
	JobLimits       JobLimits
	WorkspaceLimits WorkspaceLimits
	LastWords       time.Duration
	Limits          sandbox.Limits
	Like            *Host // nil unless another one was tried
}

// Host is this machine as jobs and workspaces use it: its folders, accounts and control groups, what it shows of its
// files, and what confines programs on it. It knows neither templates nor the jobs' work.
type Host struct {
	opts      Options // with all folders
	log       *slog.Logger
	program   Program // what jobs run
	small     string  // the program that starts sandboxes, see launcher; empty if there is none
	isolation isolation
	runDir    string
	derived   bool              // runDir is named by chooseDirs
	lock      *os.File          // of runDir
	baseEnv   map[string]string // of a job's programs, without the slot's own
	cgroups   bool              // jobs are bounded by cgroups

	etc        sync.Mutex                     // guards the /etc of sandboxes
	looked     atomic.Pointer[func() visible] // what the host has, see hostFiles
	background sync.WaitGroup                 // what looks at it, and what follows its /etc
	unfollow   context.CancelFunc             // ends following the host's /etc; nil if nothing follows it
}

// New takes the folders of a host, and begins to look at it. Leave releases them. The errors are faults if the user
// can fix them: folders in use by another process, files for jobs that cannot be read. Nothing can run before SetUp.
func New(opts Options) (*Host, error) {
	if err := checkJobFiles(opts.Files); err != nil {
		return nil, err
	}
	h := &Host{opts: opts, log: opts.Logger}
	if err := h.chooseDirs(); err != nil {
		return nil, err
	}
	if err := h.lockRunDir(); err != nil {
		return nil, err
	}
	h.lookAtHost()
	return h, nil
}

// Leave releases what the host has taken. Call it once, after all slots have been closed.
func (h *Host) Leave() error {
	if h.unfollow != nil {
		h.unfollow()
	}
	h.background.Wait()
	return errors.Join(h.isolation.accounts.close(), h.leaveRunDir())
}

// Disks lists folders whose disks may be full.
func (h *Host) Disks() []string { return []string{h.runDir, h.opts.CacheDir, h.opts.WorkspacesDir} }

// Store writes a policy to a file, so that sandbox.Command of its name runs it.
func (h *Host) Store(p sandbox.Policy, name string) error { return p.Store(name, h.launcher()) }

// unpack writes the small program that starts sandboxes into the cache folder. It runs with our rights, so another
// account's folder does not get it: volumes of containers are like that.
func (h *Host) unpack() {
	if h.opts.Launcher == nil {
		return
	}
	dir := filepath.Join(h.opts.CacheDir, "launcher")
	err := errors.Join(makeDirs(dir), ownedByUs(h.opts.CacheDir), ownedByUs(dir))
	if err == nil {
		h.small, err = h.opts.Launcher(dir)
	}
	if err != nil {
		h.log.Info("this program starts sandboxes, which takes longer than with a small one", "err", err)
	}
}

// MakeCache makes the folder for templates in the cache folder, which may be deleted at any time, unless it is there.
func (h *Host) MakeCache() error {
	templates := filepath.Join(h.opts.CacheDir, "templates")
	err := makeDirs(h.opts.CacheDir, templates)
	if err == nil && h.isolation.accounts != nil {
		err = os.Chmod(templates, 0o711) // as openFor does
	}
	return err
}

// launcher returns the program that starts sandboxes: the small one, or our own if there is no other, or if the cache
// folder was deleted meanwhile.
func (h *Host) launcher() string {
	if _, err := os.Stat(h.small); h.small == "" || err != nil {
		return h.opts.Worker[0]
	}
	return h.small
}

// CacheDir returns the folder for what jobs share.
func (h *Host) CacheDir() string { return h.opts.CacheDir }

// MayRun reports whether jobs are confined here, or the operator wants no isolation.
func (h *Host) MayRun() bool { return h.isolation.confined() || h.isolation.none }

// Confinement describes for users what confines templates here.
func (h *Host) Confinement() string { return h.isolation.String() }

// Concerns returns what an operator should know about the confinement of templates here, as sentences; none if it is
// complete.
func (h *Host) Concerns() []string { return h.isolation.concerns }

// RunDir returns the folder of this host's slots, which belongs to one executor alone.
func (h *Host) RunDir() string { return h.runDir }

// JobEnv returns the environment of all programs of jobs, apart from the slot's folders and the job's facts. It must
// not be changed.
func (h *Host) JobEnv() map[string]string { return h.baseEnv }

// Program returns the program that SetUp was given.
func (h *Host) Program() Program { return h.program }
