package terraform

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

// slot is a place for one job at a time. Its folder is the job's; what the daemon notes about the job lies beside it, where
// the job cannot write:
//
//	<run>/s3/w        the job's working folder
//	<run>/s3/h        its HOME
//	<run>/s3/<random> its TMPDIR, with the gate to its provider worker
//	<run>/x3          the sandbox, as a command
//	<run>/p3          the process that runs now
//	<run>/j3          the job
//	<run>/t3          the resources that it has begun to change
type slot struct {
	e   *Executor
	n   int
	dir string

	mu     sync.Mutex // guards what follows; a slot is prepared in the background
	tf     *tfexec.Terraform
	worker *worker
	tmp    string // of the running job
}

// note is what is known about a job besides its files.
type note struct {
	JobID string `json:"job_id"` // hex
	Epoch uint64 `json:"epoch"`
}

func newSlot(e *Executor, n int) (*slot, error) {
	s := &slot{e: e, n: n, dir: filepath.Join(e.runDir, "s"+strconv.Itoa(n))}
	if err := s.reset(); err != nil {
		return nil, err
	}
	p := e.policy([]string{s.dir}, nil, s.pidFile())
	if err := p.writeCommand(s.command(), e.opts.Worker[0]); err != nil {
		return nil, err
	}
	return s, nil
}

// policy is the sandbox of a command that may also use the given files.
func (e *Executor) policy(write, read []string, pidFile string) policy {
	i := e.isolation
	return policy{
		Exec: e.binary.path, PidFile: pidFile, Landlock: i.abi > 0,
		Write: append(write, i.write...), Read: append(read, i.read...),
		UID: i.uid, GID: i.gid, Groups: i.groups, Show: i.show, Limits: e.opts.Limits,
	}
}

func (s *slot) work() string    { return filepath.Join(s.dir, "w") }
func (s *slot) home() string    { return filepath.Join(s.dir, "h") }
func (s *slot) command() string { return filepath.Join(s.e.runDir, "x"+strconv.Itoa(s.n)) }
func (s *slot) pidFile() string { return filepath.Join(s.e.runDir, "p"+strconv.Itoa(s.n)) }
func (s *slot) jobFile() string { return filepath.Join(s.e.runDir, "j"+strconv.Itoa(s.n)) }

func (s *slot) touchedFile() string {
	return filepath.Join(s.e.runDir, "t"+strconv.Itoa(s.n))
}

// reset makes the slot's folders, empty.
func (s *slot) reset() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("empty slot: %w", err)
	}
	for _, dir := range []string{s.dir, s.work(), s.home()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("make slot: %w", err)
		}
		if err := s.e.isolation.own(dir); err != nil {
			return fmt.Errorf("make slot: %w", err)
		}
	}
	return nil
}

// prepare makes the slot ready ahead of its next job: a Terraform object that knows its version, and a waiting worker.
func (s *slot) prepare() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prepareLocked()
}

func (s *slot) prepareLocked() error {
	if s.worker != nil && !s.worker.alive() {
		s.worker.close()
		s.worker = nil
	}
	if s.worker == nil && !s.e.isClosed() {
		w, err := startWorker(s.e.opts.Worker, s.e.log)
		if err != nil {
			return err
		}
		s.worker = w
	}
	if s.tf != nil {
		return nil
	}
	tf, err := s.e.newTerraform(s.work(), s.command())
	if err != nil {
		return err
	}
	s.tf = tf
	return nil
}

// newTerraform makes a terraform-exec object and lets it learn the program's version, which it otherwise does at its first
// use.
func (e *Executor) newTerraform(dir, command string) (*tfexec.Terraform, error) {
	tf, err := tfexec.NewTerraform(dir, command)
	if err != nil {
		return nil, fmt.Errorf("set up terraform: %w", err)
	}
	// A graceful stop takes what it takes; an end at once kills the whole group.
	err = errors.Join(tf.SetEnv(e.baseEnv), tf.SetDisablePluginTLS(true), tf.SetWaitDelay(0))
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

// begin takes the slot for a job.
func (s *slot) begin(offer *provisionerpb.Offer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// serve hands the job's facts to the slot's worker and returns how Terraform reaches it. One worker serves one set of facts:
// a further call of the same job starts another. The slot's process may call the worker, and those in more pid files.
func (s *slot) serve(ctx context.Context, f facts, morePidFiles ...string) (tfexec.ReattachInfo, map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tmp != "" {
		s.worker.close()
		s.worker = nil
	}
	if err := s.prepareLocked(); err != nil {
		return nil, nil, err
	}
	s.tmp = filepath.Join(s.dir, strings.ToLower(rand.Text()[:16]))
	if err := os.Mkdir(s.tmp, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make temporary folder: %w", err)
	}
	if err := s.e.isolation.own(s.tmp); err != nil {
		return nil, nil, fmt.Errorf("make temporary folder: %w", err)
	}
	env, err := f.worker()
	if err != nil {
		return nil, nil, err
	}
	env["TMPDIR"] = s.tmp
	where, err := s.worker.serve(ctx, workerRequest{Env: env, UID: s.e.isolation.uid, GID: s.e.isolation.gid, Limits: s.e.opts.Limits}, append(morePidFiles, s.pidFile())...)
	if err != nil {
		return nil, nil, err
	}
	jobEnv := f.public()
	for name, value := range s.e.baseEnv {
		jobEnv[name] = value
	}
	jobEnv["HOME"], jobEnv["TMPDIR"] = s.home(), s.tmp
	return where, jobEnv, nil
}

// end removes what the job left.
func (s *slot) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker != nil && s.tmp != "" {
		s.worker.close()
		s.worker = nil
	}
	s.tmp = ""
	s.killLeft()
	return errors.Join(s.reset(), removeFile(s.jobFile()), removeFile(s.touchedFile()))
}

// killLeft ends what is left of the slot's process group and forgets it.
func (s *slot) killLeft() {
	if p, err := readProcess(s.pidFile()); err == nil {
		killGroup(p)
	}
	if err := removeFile(s.pidFile()); err != nil {
		s.e.log.Warn("forget process", "err", err)
	}
}

func (s *slot) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker != nil {
		s.worker.close()
		s.worker = nil
	}
	return os.RemoveAll(s.dir)
}

// supervise runs one Terraform command of the job. The context that run gets ends when the job is asked to stop, which
// interrupts Terraform; when ctx ends, the process group is killed. When supervise returns the group is gone.
func supervise(ctx context.Context, stop <-chan struct{}, pidFile string, run func(context.Context) error) error {
	if err := removeFile(pidFile); err != nil {
		return err
	}
	gentle, interrupt := context.WithCancel(context.WithoutCancel(ctx))
	defer interrupt()
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-done:
			return
		case <-stop:
			interrupt()
		case <-ctx.Done():
		}
		select {
		case <-done:
			return
		case <-ctx.Done():
			interrupt()
		}
		// The process may be so young that it has not noted its number yet.
		again := time.NewTicker(2 * time.Millisecond)
		defer again.Stop()
		for {
			if p, err := readProcess(pidFile); err == nil {
				killGroup(p)
			}
			select {
			case <-done:
				return
			case <-again.C:
			}
		}
	})
	err := run(gentle)
	close(done)
	watcher.Wait()
	if p, perr := readProcess(pidFile); perr == nil {
		if err == nil {
			letLeave(ctx, p)
		}
		killGroup(p)
	}
	return errors.Join(err, removeFile(pidFile))
}

// leaveTime is how long what a local-exec left in the background may take to get into a session of its own.
const leaveTime = 250 * time.Millisecond

// letLeave waits until the group of p is empty, at most leaveTime: a process that was started just before Terraform ended may
// be on its way to a session of its own, where it may stay.
func letLeave(ctx context.Context, p process) {
	deadline := time.NewTimer(leaveTime)
	defer deadline.Stop()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for groupAlive(p) {
		select {
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

func readProcess(name string) (process, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return process{}, fmt.Errorf("read process note: %w", err)
	}
	var p process
	if err := json.Unmarshal(text, &p); err != nil {
		return process{}, fmt.Errorf("decode process note: %w", err)
	}
	return p, nil
}

func removeFile(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove file: %w", err)
	}
	return nil
}

// discardOutput ends terraform-exec's habit to go on writing to the last writer it was given.
func discardOutput(tf *tfexec.Terraform) {
	tf.SetStdout(io.Discard)
	tf.SetStderr(io.Discard)
}
