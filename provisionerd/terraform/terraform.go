package terraform

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

var _ job.Executor = (*Executor)(nil)

// DefaultInitTimeout is the default of Options.InitTimeout: enough for some gigabytes of providers over a slow line.
const DefaultInitTimeout = 15 * time.Minute

// DefaultLastWords is the default of Options.LastWords.
const DefaultLastWords = 30 * time.Second

// Options configure an Executor.
type Options struct {
	// Logger receives the executor's log. Nil discards it.
	Logger *slog.Logger
	// Binary is the path of terraform or tofu. Empty means the first of the two in PATH.
	Binary string
	// Install lets New download Terraform into CacheDir if Binary is empty.
	Install bool
	// CacheDir holds unpacked and initialized template versions. Several executors may share it. Empty means
	// /var/cache/codermesh for root, else a folder in the user's cache folder.
	CacheDir string
	// RunDir holds the slots, and belongs to one executor alone; it must stay the same across restarts so that Recover
	// finds what was left. It should be on a memory file system. Empty means a folder below /run for root, else in the
	// user's runtime folder. If it is too long for unix sockets, New derives a short one from it.
	RunDir string
	// WorkspacesDir holds the home folders of workspaces that are processes of this host. Empty means
	// /var/lib/codermesh/workspaces for root, else a folder in the user's home.
	WorkspacesDir string
	// Worker is the command of our own program that calls ServeProvider. Its first element, an absolute path, must call
	// launcher.Main, too.
	Worker []string
	// Launcher writes a smaller program that calls launcher.Main into a folder, and returns its path, or "" if this
	// build has none. Nil: our own program is started instead.
	Launcher func(dir string) (string, error) `json:"-"`
	// InitTimeout bounds one terraform init. 0 means DefaultInitTimeout.
	InitTimeout time.Duration
	// Slots is how many slots are kept warm; 0 means 1, negative none.
	Slots int
	// Isolation is "auto" (the same as "") or "none"; see the package documentation.
	Isolation string
	// MayRunUnconfined is called before each job if Isolation is "auto" and this machine cannot confine templates; its
	// error fails the job. If it is nil, New fails instead.
	MayRunUnconfined func(context.Context) error `json:"-"`
	// DockerSocket is given to templates that use a provider named docker. Empty means never.
	DockerSocket string
	// ExtraEnv names variables of this process's environment that templates may see, such as AWS_PROFILE.
	ExtraEnv []string
	// Readable are files and folders of this host that templates and workspaces may read, in addition to the software
	// and a part of /etc.
	Readable []string
	// Files are files of this host, such as credentials, that every job gets a copy of.
	Files []host.JobFile
	// Hidden are files and folders with secrets of the operator, wherever they lie, which templates and workspaces
	// never see.
	Hidden []string
	// ServiceAccount is the folder with the credentials of a Kubernetes pod. Jobs may read it if ExtraEnv names
	// KUBERNETES_SERVICE_HOST, without which nothing finds the cluster. Empty means where the kubelet puts it.
	ServiceAccount string
	// JobLimits bound the processes of a confined job together.
	JobLimits host.JobLimits
	// WorkspaceLimits bound each workspace that is a process of this host. Templates may ask for less.
	WorkspaceLimits host.WorkspaceLimits
	// LastWords is how long Terraform may take to save its state and end after the daemon was killed, if bubblewrap
	// works. 0 means DefaultLastWords.
	LastWords time.Duration
	// Limits bound each process of a job. Builds have none, because the needs of providers are unknown.
	Limits sandbox.Limits
	// Like is an executor of this process with the same Binary and Isolation: New uses the Terraform that it found, and
	// does not try again whether that runs confined. Nil finds and tries both.
	Like *Executor
	// Metrics registers the executor's metrics. Nil registers none.
	Metrics prometheus.Registerer
}

// Executor runs jobs with Terraform.
type Executor struct {
	opts  Options
	log   *slog.Logger
	host  *host.Host
	cache *cache

	mu     sync.Mutex // guards slots and closed
	slots  map[int]*host.Slot
	closed bool

	warming sync.WaitGroup

	evaluations chan int // slots that no evaluation uses
}

// New finds Terraform, claims its folders, sets aside what a killed predecessor left (see Recover), and starts
// preparing slots. Its errors are faults if the user can fix them: no usable Terraform, folders in use by another
// process. It may block for a download if opts.Install is set; ctx bounds that.
func New(ctx context.Context, opts Options) (*Executor, error) {
	if len(opts.Worker) == 0 {
		return nil, errors.New("create executor: no worker command")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.InitTimeout <= 0 {
		opts.InitTimeout = DefaultInitTimeout
	}
	if opts.LastWords <= 0 {
		opts.LastWords = DefaultLastWords
	}
	if opts.Slots == 0 {
		opts.Slots = 1
	}
	h, err := host.New(opts.host())
	if err != nil {
		return nil, err
	}
	e := &Executor{opts: opts, log: opts.Logger, host: h, slots: map[int]*host.Slot{}, evaluations: freeSlots()}
	if err := e.setUp(ctx); err != nil {
		return nil, errors.Join(err, h.Leave())
	}
	for n := range max(opts.Slots, 0) {
		e.warm(n)
	}
	h.FollowEtc(ctx)
	return e, nil
}

// host returns the options of the executor's host.
func (o Options) host() host.Options {
	h := host.Options{
		Logger: o.Logger, CacheDir: o.CacheDir, RunDir: o.RunDir, WorkspacesDir: o.WorkspacesDir, Worker: o.Worker,
		Launcher:     o.Launcher,
		Isolation:    o.Isolation,
		DockerSocket: o.DockerSocket, ExtraEnv: o.ExtraEnv, Readable: o.Readable, Files: o.Files, Hidden: o.Hidden,
		ServiceAccount: o.ServiceAccount, JobLimits: o.JobLimits, WorkspaceLimits: o.WorkspaceLimits,
		LastWords: o.LastWords, Limits: o.Limits,
	}
	if o.Like != nil {
		h.Like = o.Like.host
	}
	return h
}

// setUp finds Terraform and what confines it, and sets aside what a killed predecessor left.
func (e *Executor) setUp(ctx context.Context) (err error) {
	opts, h := e.opts, e.host
	var program host.Program
	if opts.Like != nil {
		program = opts.Like.host.Program()
	} else if program, err = host.FindTerraform(ctx, opts.Binary, opts.Install, filepath.Join(h.CacheDir(),
		"bin"), e.log); err != nil {
		return err
	}
	cli, err := writeCLIConfig(h.RunDir())
	if err != nil {
		return err
	}
	if err := h.SetUp(ctx, program, cli.jobFile, cli.mirrors, opts.MayRunUnconfined != nil); err != nil {
		return err
	}
	e.cache = newCache(h, e.log, cli, opts.InitTimeout, opts.Metrics)
	return nil
}

// Name describes what runs the jobs: "terraform 1.11.4".
func (e *Executor) Name() string { return e.host.Program().Name() }

// Isolation describes for users what confines templates here.
func (e *Executor) Isolation() string { return e.host.Confinement() }

// Concerns returns what an operator should know about the confinement of templates here, as sentences; none if it is
// complete.
func (e *Executor) Concerns() []string { return slices.Clone(e.host.Concerns()) }

// Outdated returns which templates may not work with this version of Terraform and what to do about it, without a full
// stop, or "".
func (e *Executor) Outdated() string { return e.host.Program().Concern() }

// Announce logs what runs the jobs and what confines templates, and warns if the confinement is incomplete. Several
// executors of one process would log the same.
func (e *Executor) Announce() {
	e.log.Info("terraform is ready", "program", e.host.Program().Name(), "isolation", e.host.Confinement())
	if concern := e.Outdated(); concern != "" {
		e.log.Warn(concern)
	}
	for _, concern := range slices.Concat(e.host.Concerns(), e.cache.cli.concerns) {
		e.log.Warn(concern)
	}
}

// Run implements job.Executor.
func (e *Executor) Run(ctx context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
	s, err := e.takeSlot(run.Slot)
	if err != nil {
		return failed(e.host, err)
	}
	defer e.giveBack(s)
	r := &runner{host: e.host, cache: e.cache, timeout: e.opts.JobLimits.Timeout, slot: s, offer: run.Offer, run: run,
		log: result.NewLog(run.Sink), stop: stop}
	var res *provisionerpb.Result
	if err := e.mayRun(ctx); err != nil {
		res = r.failed(err)
	} else {
		res = r.perform(ctx)
	}
	// What programs print may be about other machines' disks, and counts only if one of these is full: before the slot
	// is cleaned.
	if full := disk.ExplainText(res.GetError(), provisionersDisk, e.host.Disks()...); full != nil {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_ERROR, "%s", res.GetError())
		res.Error = full.Error()
	}
	return res
}

// perform runs the job in its slot.
func (r *runner) perform(ctx context.Context) *provisionerpb.Result {
	if err := r.slot.Begin(r.offer); err != nil {
		return r.failed(err)
	}
	asked := r.stop // limitTime replaces it
	ctx, endTime := r.limitTime(ctx)
	defer endTime()
	var res *provisionerpb.Result
	switch work := r.offer.GetJob().(type) {
	case *provisionerpb.Offer_WorkspaceBuild:
		res = r.build(ctx, work.WorkspaceBuild)
	case *provisionerpb.Offer_TemplateImport:
		res = r.importTemplate(ctx, work.TemplateImport)
	case *provisionerpb.Offer_TemplateDryRun:
		res = r.dryRun(ctx, work.TemplateDryRun)
	default:
		res = r.failed(fault.New(fault.Invalid,
			"this provisioner does not support the offered kind of job: upgrade it"))
	}
	if res.GetError() != "" && r.tookTooLong(asked) {
		res.Error = fault.New(fault.Invalid,
			"the job took longer than %s: make it shorter, or raise --provisioner-job-timeout of the provisioner",
			r.timeout).Error()
		res.ErrorCode = ""
	} else if res.GetError() != "" && (ctx.Err() != nil || stopped(asked)) {
		res.Canceled, res.ErrorCode = true, result.CodeCanceled
	}
	return res
}

// mayRun refuses jobs on a machine that cannot confine them, unless that is allowed.
func (e *Executor) mayRun(ctx context.Context) error {
	if e.host.MayRun() {
		return nil
	}
	if err := e.opts.MayRunUnconfined(ctx); err != nil {
		return errors.Join(e.host.ErrUnconfined(), err)
	}
	return nil
}

// Close ends prepared processes. It is idempotent. Call it after the last Run has returned.
func (e *Executor) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	e.warming.Wait()
	var errs []error
	for _, s := range e.slots {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, e.host.Leave())...)
}

// takeSlot returns slot n, and makes it if it does not exist yet.
func (e *Executor) takeSlot(n int) (*host.Slot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errors.New("take slot: the executor is closed")
	}
	s := e.slots[n]
	if s == nil {
		var err error
		if s, err = host.NewSlot(e.host, n, e.isClosed); err != nil {
			return nil, err
		}
		e.slots[n] = s
	}
	return s, nil
}

// giveBack cleans the slot and warms it up for the next job.
func (e *Executor) giveBack(s *host.Slot) {
	if err := s.End(); err != nil {
		e.log.Warn("cannot clean slot", "err", err)
	}
	e.warm(s.Number)
}

// warm prepares slot n in the background. It logs a failure, which the next job in the slot meets again and reports.
func (e *Executor) warm(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.warming.Go(func() {
		s, err := e.takeSlot(n)
		if err == nil {
			err = s.Prepare()
		}
		if err != nil && !e.isClosed() {
			e.log.Warn("cannot prepare slot", "err", err)
		}
	})
}

func (e *Executor) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

const (
	// maxEvaluations is how many evaluations run at one time. Others wait.
	maxEvaluations = 2
)

// freeSlots returns the numbers of the slots for evaluations.
func freeSlots() chan int {
	free := make(chan int, maxEvaluations)
	for n := range maxEvaluations {
		free <- n
	}
	return free
}
