package host

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// Slot is a place for one job at a time. The daemon owns its folder and the note about the job. The job gets three
// folders in it, which the daemon fills before it hands them over, and never writes to afterwards:
//
//	<run>/s3/w        the job's working folder, a new one for each plan
//	<run>/s3/h        its HOME
//	<run>/s3/t        its TMPDIR, with the gate to its provider worker
//	<run>/s3/f        copies of the operator's files, which the job can only read
//	<run>/s3/process  the socket by which a build asks for its workspace's process
//	<run>/x3          the sandbox of its commands, and x3.run, the command
//	<run>/p3          the process that runs now
//	<run>/e3          the /etc that the sandbox sees
//	<run>/j3          the job
//	<run>/t3          the resources that it has begun to change
type Slot struct {
	host   *Host
	Number int
	closed func() bool // the executor has been closed
	dir    string
	uid    int // the account of its next or present job; 0 for the daemon's own
	// cgroup bounds its jobs; nil without control groups.
	cgroup *cgroup

	mu      sync.Mutex // guards the fields below; a slot is prepared in the background
	tf      *tfexec.Terraform
	worker  *worker
	served  bool // the worker has received its facts
	spent   bool // uid was an earlier job's
	unclean bool // the end of a job could not clean the slot, for example on a full disk
	process *processServer

	policy sandbox.Policy // of the next commands; the slot's user of the moment sets it
}

// jobAccount is the name of a job's account in its sandbox.
const jobAccount = "job"

// NewSlot makes slot n of a host. closed reports whether its executor has been closed: then it prepares nothing any
// more.
func NewSlot(h *Host, n int, closed func() bool) (made *Slot, err error) {
	s := &Slot{host: h, Number: n, closed: closed, dir: filepath.Join(h.runDir, "s"+strconv.Itoa(n))}
	if err := s.takeAccount(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && s.uid != 0 {
			err = errors.Join(err, h.isolation.accounts.giveBack(s.uid, false))
		}
	}()
	if h.cgroups {
		group, err := openCgroup(h.cgroupName(n), h.opts.JobLimits)
		if err != nil {
			return nil, err
		}
		s.cgroup = group
	}
	s.killLeft()
	if err := s.reset(); err != nil {
		return nil, err
	}
	return s, s.Allow(Grant{})
}

// takeAccount takes an account for the slot's next job.
func (s *Slot) takeAccount() error {
	s.spent = true
	if a := s.host.isolation.accounts; a != nil {
		uid, err := a.take()
		if err != nil {
			return err
		}
		s.uid = uid
	}
	s.spent = false
	return nil
}

// changeAccount gives back the account of a job that has ended, and takes another.
func (s *Slot) changeAccount() error {
	a := s.host.isolation.accounts
	if a != nil && !s.spent {
		if err := a.giveBack(s.uid, s.host.isolation.bubblewrap == ""); err != nil {
			s.host.log.Warn("files of a job remain", "err", err)
		}
	}
	return s.takeAccount()
}

func (s *Slot) Work() string          { return filepath.Join(s.dir, "w") }
func (s *Slot) home() string          { return filepath.Join(s.dir, "h") }
func (s *Slot) Tmp() string           { return filepath.Join(s.dir, "t") }
func (s *Slot) processSocket() string { return filepath.Join(s.dir, "process") }
func (s *Slot) Command() string       { return sandbox.Command(s.beside("x")) }
func (s *Slot) PidFile() string       { return s.beside("p") }
func (s *Slot) jobFile() string       { return s.beside("j") }

// beside returns the name of one of the daemon's files about the slot.
func (s *Slot) beside(kind string) string {
	return filepath.Join(s.host.runDir, kind+strconv.Itoa(s.Number))
}

// Own gives a file or folder made by the daemon to the slot's account.
func (s *Slot) Own(name string) error {
	if s.uid == 0 {
		return nil
	}
	if err := os.Lchown(name, s.uid, s.uid); err != nil {
		return fmt.Errorf("give to job: %w", err)
	}
	return nil
}

// Allow sets what the slot's next commands may use in addition to the slot's folders. They have the environment that
// all jobs have, until Equip gives them another.
func (s *Slot) Allow(g Grant) error {
	g.Write = append([]string{s.Work(), s.home(), s.Tmp()}, g.Write...)
	g.sockets = append([]string{s.processSocket()}, g.sockets...)
	if s.host.isolation.bubblewrap != "" {
		var err error
		if g.etc, err = s.host.writeEtc(s.beside("e"), account{jobAccount, s.home(), "/bin/sh", s.uid}); err != nil {
			return err
		}
	}
	g.cgroup = s.cgroup
	g = s.grantFiles(g)
	s.policy = s.host.policyOf(s.host.isolation, s.uid, g, s.PidFile())
	s.policy.Dir = s.Work()
	return s.Equip(s.host.baseEnv)
}

// Equip sets the environment of the slot's next commands. It travels in the policy: what starts the sandbox must not
// see it.
func (s *Slot) Equip(env map[string]string) error {
	s.policy.Env = Environ(env)
	return s.policy.Store(s.beside("x"), s.host.launcher())
}

// reset makes the slot's folders, empty.
func (s *Slot) reset() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("empty slot: %w", err)
	}
	if err := os.Mkdir(s.dir, 0o711); err != nil {
		return fmt.Errorf("make slot: %w", err)
	}
	for _, dir := range []string{s.Work(), s.home(), s.Tmp()} {
		if err := s.Renew(dir); err != nil {
			return err
		}
		if err := s.Own(dir); err != nil {
			return err
		}
	}
	return s.resetFiles()
}

// Renew replaces one of the slot's folders with an empty one that the daemon owns; Own hands it over. No process of the
// job may run.
func (s *Slot) Renew(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("empty slot: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make slot: %w", err)
	}
	return nil
}

// Prepare prepares the slot for its next job: a Terraform object that knows its version, and a waiting worker.
func (s *Slot) Prepare() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prepareLocked()
}

func (s *Slot) prepareLocked() error {
	if s.worker != nil && !s.worker.alive() {
		s.worker.close()
		s.worker = nil
	}
	if s.worker == nil && !s.closed() {
		w, err := startWorker(s.host.opts.Worker, s.host.log)
		if err != nil {
			return err
		}
		s.worker = w
	}
	if s.tf != nil {
		return nil
	}
	tf, err := NewTerraform(s.Command())
	if err != nil {
		return err
	}
	s.tf = tf
	return nil
}

// NewTerraform makes a terraform-exec object and passes it the program's version, which it would otherwise look up at
// its first use. The command starts in / and without variables of the job: its policy has its folder and its
// environment.
func NewTerraform(command string) (*tfexec.Terraform, error) {
	tf, err := tfexec.NewTerraform("/", command)
	if err != nil {
		return nil, fmt.Errorf("set up terraform: %w", err)
	}
	// A graceful stop has no time limit here; an immediate end kills the whole group.
	err = errors.Join(tf.SetEnv(map[string]string{}), tf.SetWaitDelay(0))
	if err != nil {
		return nil, fmt.Errorf("set up terraform: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	if _, _, err := tf.Version(ctx, true); err != nil {
		return nil, fmt.Errorf("run terraform in its sandbox: %w", err)
	}
	return tf, nil
}

// Begin takes the slot for a job, and notes the job for a successor of this process. End gives the slot back.
func (s *Slot) Begin(offer *provisionerpb.Offer) error {
	s.host.lookAtHost()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spent {
		if err := s.takeAccount(); err != nil {
			return err
		}
		s.unclean = true
	}
	if s.unclean {
		if err := s.clean(); err != nil {
			return err
		}
	}
	if err := s.prepareLocked(); err != nil {
		return err
	}
	text, err := json.Marshal(note{JobID: hex.EncodeToString(offer.GetJobId()), Epoch: offer.GetEpoch()})
	if err != nil {
		return fmt.Errorf("note job: %w", err)
	}
	if err := os.WriteFile(s.jobFile(), text, 0o600); err != nil {
		return fmt.Errorf("note job: %w", err)
	}
	return nil
}

// Serve passes the job's facts to the slot's worker and returns the environment with which Terraform reaches it. One
// worker serves one set of facts: a further call for the same job starts another, and gives the job a new TMPDIR.
// Nothing of the job may run. The slot's process may call the worker, and so may the processes in more pid files.
func (s *Slot) Serve(ctx context.Context, f Facts, morePidFiles ...string) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dismiss()
	if err := s.prepareLocked(); err != nil {
		return nil, err
	}
	if err := s.Renew(s.Tmp()); err != nil {
		return nil, err
	}
	env, err := f.worker()
	if err != nil {
		return nil, err
	}
	env["TMPDIR"] = s.Tmp()
	s.served = true
	where, err := s.worker.serve(ctx, workerRequest{Env: env, UID: s.uid, GID: s.uid, Rehearsal: f.Rehearsal,
		Limits: s.host.opts.Limits}, append(morePidFiles, s.PidFile())...)
	if err != nil {
		return nil, err
	}
	if err := s.Own(s.Tmp()); err != nil { // including the gate in it
		return nil, err
	}
	attached, err := json.Marshal(where)
	if err != nil {
		return nil, fmt.Errorf("encode provider: %w", err)
	}
	jobEnv := f.public()
	for name, value := range s.host.baseEnv {
		jobEnv[name] = value
	}
	if err := s.fillFiles(jobEnv); err != nil {
		return nil, err
	}
	f.addIDToken(jobEnv, s.Work())
	jobEnv["HOME"], jobEnv["TMPDIR"] = s.home(), s.Tmp()
	jobEnv[sandbox.ReattachVariable] = string(attached)
	if s.host.isolation.bubblewrap != "" {
		jobEnv["USER"], jobEnv["LOGNAME"] = jobAccount, jobAccount
	}
	if err := s.offerProcess(f, jobEnv); err != nil {
		return nil, err
	}
	return jobEnv, nil
}

// WorkerEnd reports how the provider worker of the job ended, "" while it serves.
func (s *Slot) WorkerEnd() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker == nil || s.worker.alive() {
		return ""
	}
	return s.worker.end
}

// Halt ends what runs of the job, and the worker that serves it.
func (s *Slot) Halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dismiss()
	s.killLeft()
}

// dismiss ends the worker that serves the job. s.mu must be held.
func (s *Slot) dismiss() {
	if s.worker != nil && s.served {
		s.worker.close()
		s.worker = nil
	}
	s.served = false
}

// End removes what the job left behind.
func (s *Slot) End() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dismiss()
	err := s.closeProcess()
	s.killLeft()
	return errors.Join(err, s.changeAccount(), s.clean(), RemoveFile(s.jobFile()))
}

// clean empties the slot, and gives it to its account.
func (s *Slot) clean() error {
	err := errors.Join(s.reset(), s.Allow(Grant{}))
	s.unclean = err != nil
	return err
}

// killLeft ends the slot's remaining processes and forgets them.
func (s *Slot) killLeft() {
	if p, err := readProcess(s.PidFile()); err == nil {
		sandbox.KillGroup(p)
	}
	if err := RemoveFile(s.PidFile()); err != nil {
		s.host.log.Warn("cannot forget process", "err", err)
	}
	if s.cgroup != nil {
		if err := s.cgroup.kill(); err != nil {
			s.host.log.Warn("cannot end remaining processes of a job", "err", err)
		}
	}
	// In namespaces they end with process 1.
	if s.uid != 0 && s.host.isolation.bubblewrap == "" {
		if err := sandbox.KillAccount(s.host.opts.Worker[0], s.uid); err != nil {
			s.host.log.Warn("cannot end remaining processes of a job", "err", err)
		}
	}
}

// Close ends the slot's worker and removes its folder. No job may run in it.
func (s *Slot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker != nil {
		s.worker.close()
		s.worker = nil
	}
	err := errors.Join(s.closeProcess(), os.RemoveAll(s.dir))
	if s.cgroup != nil {
		s.cgroup.close()
	}
	return err
}

// Supervise runs one Terraform command of the job. When the job is asked to stop, Supervise interrupts Terraform; when
// ctx ends, it kills Terraform's processes. They are gone when Supervise returns, except for those that, without
// isolation, moved to a session of their own.
func Supervise(ctx context.Context, stop <-chan struct{}, pidFile string, run func(context.Context) error) error {
	if err := RemoveFile(pidFile); err != nil {
		return err
	}
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-done:
			return
		case <-stop:
			whenNoted(pidFile, done, ctx.Done(), func(p sandbox.Process) bool { return p.Signal(syscall.SIGINT) })
		case <-ctx.Done():
		}
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		whenNoted(pidFile, done, nil, func(p sandbox.Process) bool {
			sandbox.KillGroup(p)
			return false
		})
	})
	// The end of a context given to terraform-exec would interrupt bubblewrap, not Terraform.
	err := run(context.WithoutCancel(ctx))
	close(done)
	watcher.Wait()
	if p, perr := readProcess(pidFile); perr == nil {
		if err == nil && !p.Namespaces {
			letLeave(ctx, p)
		}
		sandbox.KillGroup(p)
	}
	return errors.Join(err, RemoveFile(pidFile))
}

// whenNoted calls do with the process that the file names until do returns true, or one of the channels is closed. The
// process may be so young that it has not noted its number yet, or does not handle signals yet.
func whenNoted(pidFile string, done, over <-chan struct{}, do func(sandbox.Process) bool) {
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		if p, err := readProcess(pidFile); err == nil && do(p) {
			return
		}
		select {
		case <-done:
			return
		case <-over:
			return
		case <-again.C:
		}
	}
}

// leaveTime is how long a background process of a local-exec may take to move to its own session.
const leaveTime = 250 * time.Millisecond

// letLeave waits until the group of p is empty, at most leaveTime: a process that was started just before Terraform
// ended may still be moving to a session of its own, where it may stay if nothing is isolated.
func letLeave(ctx context.Context, p sandbox.Process) {
	deadline := time.NewTimer(leaveTime)
	defer deadline.Stop()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for sandbox.GroupAlive(p) {
		select {
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// Policy returns the sandbox policy of a command of the slot's job that may use what g grants, and nothing of the slot.
func (s *Slot) Policy(g Grant, pidFile string) sandbox.Policy {
	g.cgroup = s.cgroup
	return s.host.policyOf(s.host.isolation, s.uid, g, pidFile)
}

// Terraform returns the object that runs the slot's commands, which Prepare or Begin has made.
func (s *Slot) Terraform() *tfexec.Terraform { return s.tf }
