package terraform

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// hostOptions are what a host needs of the options of an executor, whose documentation describes the fields.
type hostOptions struct {
	Logger          *slog.Logger
	CacheDir        string
	RunDir          string
	WorkspacesDir   string
	Worker          []string
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
	Like            *host // nil unless another one was tried
}

// host is this machine as jobs and workspaces use it: its folders, accounts and control groups, what it shows of its files, and what confines
// programs on it. It knows neither templates nor the jobs' work.
type host struct {
	opts      hostOptions // with all folders
	log       *slog.Logger
	program   binary // what jobs run
	isolation isolation
	runDir    string
	derived   bool              // runDir is named by chooseDirs
	lock      *os.File          // of runDir
	baseEnv   map[string]string // of a job's programs, without the slot's own
	cgroups   bool              // jobs are bounded by cgroups

	etc        sync.Mutex                     // guards the /etc of sandboxes
	looked     atomic.Pointer[func() visible] // what the host has, see hostFiles
	background sync.WaitGroup                 // what looks at it
}

// newHost claims the folders of a host, and begins to look at it. leave releases them.
func newHost(opts hostOptions) (*host, error) {
	h := &host{opts: opts, log: opts.Logger}
	if err := h.chooseDirs(); err != nil {
		return nil, err
	}
	if err := h.claimRunDir(); err != nil {
		return nil, err
	}
	h.lookAtHost()
	return h, nil
}

// leave releases what the host has claimed. Nothing may run on it any more.
func (h *host) leave() error {
	h.background.Wait()
	return errors.Join(h.isolation.accounts.close(), h.leaveRunDir())
}

// disks lists folders whose disks may be full.
func (h *host) disks() []string { return []string{h.runDir, h.opts.CacheDir, h.opts.WorkspacesDir} }
