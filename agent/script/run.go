package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/disk"
)

const (
	// termDelay is how long a script that ran out of time may take to end before it is killed.
	termDelay = 5 * time.Second
	// outputDelay is how long the end of a script waits for output that is still in the pipe.
	outputDelay    = 2 * time.Second
	exitNotStarted = 127
)

// workspacesDisk begins the sentences about disks that take no more data.
const workspacesDisk = "The workspace's disk"

var errClosed = errors.New("the agent is stopping")

// run is one script in its own session.
type run struct {
	program *program
	output  *os.File // read end of what it prints
	copied  chan struct{}
}

// Run runs a script until it ends, reaches its time limit, or ctx ends, which counts as reaching the limit. Programs
// that it leaves in the background keep running, and Run's reader still receives their output.
func (r *Runner) Run(ctx context.Context, s Script, env Environment) Result {
	result := Result{Script: s.ID, Started: time.Now()}
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	x, err := r.start(s, env)
	if err != nil {
		result.Ended, result.ExitCode, result.Err = time.Now(), exitNotStarted, err
		r.report(s, fmt.Sprintf("The script could not be started: %v\n",
			disk.Explain(err, workspacesDisk, r.opts.StateDir)))
		return result
	}
	result.TimedOut = r.wait(ctx, x)
	result.Ended = time.Now()
	result.ExitCode = x.program.exitCode()
	if result.TimedOut {
		r.report(s, fmt.Sprintf("The script was ended after %s.\n",
			result.Ended.Sub(result.Started).Round(time.Second)))
	}
	return result
}

// Output runs a script as Run does and returns the first limit bytes of its stdout and stderr. It writes no log file.
// It fails if the script does.
func (r *Runner) Output(ctx context.Context, s Script, env Environment, limit int) (string, error) {
	out := &head{left: limit}
	s.Output, s.noFile = out, true
	x, err := r.start(s, env)
	if err != nil {
		return "", err
	}
	late := r.wait(ctx, x)
	text := out.String()
	if code := x.program.exitCode(); late || code != 0 {
		return text, fmt.Errorf("exit status %d", code)
	}
	return text, nil
}

func (r *Runner) report(s Script, text string) {
	if s.Output == nil {
		return
	}
	if _, err := io.WriteString(s.Output, text); err != nil {
		r.log.Warn("cannot write script log", "err", err)
	}
}

func (r *Runner) start(s Script, env Environment) (*run, error) {
	path, err := r.write(s)
	if err != nil {
		return nil, err
	}
	vars := proc.NewEnv(env.Env)
	data := r.dataDir(s.ID)
	if err := errors.Join(os.MkdirAll(data, 0o700), os.MkdirAll(r.BinDir(), 0o700)); err != nil {
		return nil, err
	}
	vars.Set("CODER_SCRIPT_DATA_DIR", data)
	vars.Set("CODER_SCRIPT_BIN_DIR", r.BinDir())
	var log *os.File
	if !s.noFile {
		log, err = r.logFile(s, env, vars)
	}
	if err != nil {
		r.log.Warn("cannot open script log", "err", err)
		r.report(s, fmt.Sprintf("The log file could not be opened: %v\n",
			disk.Explain(err, workspacesDisk, r.opts.LogDir)))
	}

	p, err := newProgram(s, env, path, vars)
	var x *run
	if err == nil {
		x, err = r.launch(p, s.Output, log)
	}
	if err != nil && log != nil {
		log.Close()
	}
	return x, err
}

// launch starts a program with both output streams joined. Unless it fails it owns log, which may be nil.
func (r *Runner) launch(p *program, output io.Writer, log *os.File) (*run, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	x := &run{program: p, output: read, copied: make(chan struct{})}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		read.Close()
		return nil, errClosed
	}
	if err := p.start(write); err != nil {
		read.Close()
		return nil, fmt.Errorf("start: %w", err)
	}
	if err := proc.PreferAsVictim(p.pid()); err != nil {
		r.log.Debug("cannot set memory preference", "err", err)
	}
	r.running[x] = struct{}{}
	r.wg.Go(func() {
		defer close(x.copied)
		defer read.Close()
		x.copy(output, log)
		r.mu.Lock()
		delete(r.running, x)
		r.mu.Unlock()
	})
	return x, nil
}

// copy reads the output of the script and of programs that it left in the background.
func (x *run) copy(output io.Writer, log *os.File) {
	var sinks []io.Writer
	if log != nil {
		defer log.Close()
		sinks = append(sinks, &limitedFile{w: log, left: maxLogFile, failed: func(err error) {
			if output != nil { // it does not fail
				_, _ = fmt.Fprintf(output, "The log file %s lacks what follows: %v\n", log.Name(),
					disk.Explain(err, workspacesDisk))
			}
		}})
	}
	if output != nil {
		sinks = append(sinks, output)
		if c, ok := output.(io.Closer); ok {
			defer c.Close()
		}
	}
	_, _ = io.Copy(io.MultiWriter(sinks...), x.output) // ends with the last writer or with Close; the sinks do not fail
}

// wait blocks until the script itself has ended. late is set if wait had to stop it.
func (r *Runner) wait(ctx context.Context, x *run) (late bool) {
	exited := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(exited)
		x.program.wait()
	})
	defer wg.Wait()
	select {
	case <-exited:
	case <-ctx.Done():
		late = true
		x.program.terminate()
		timer := time.NewTimer(termDelay)
		defer timer.Stop()
		select {
		case <-exited:
		case <-timer.C:
		}
		if err := x.program.kill(); err != nil {
			r.log.Warn("cannot end script", "err", err)
		}
		<-exited
	}
	timer := time.NewTimer(outputDelay)
	defer timer.Stop()
	select {
	case <-x.copied:
	case <-timer.C: // something in the background holds the pipe
	}
	return late
}

// Close stops reading the output of programs in the background, and waits for running scripts: end the contexts of
// their Runs first.
func (r *Runner) Close() error {
	r.mu.Lock()
	r.closed = true
	for x := range r.running {
		x.output.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
	return nil
}

// write writes the script's text to a file for its interpreter. An argument would be limited to 128 KiB.
func (r *Runner) write(s Script) (string, error) {
	dir := filepath.Join(r.opts.StateDir, "scripts")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, fileName(s))
	return path, os.WriteFile(path, fileText(s), 0o700)
}

func (r *Runner) logFile(s Script, env Environment, vars *proc.Env) (*os.File, error) {
	path := filepath.Join(r.opts.LogDir, "coder-script-"+s.ID.String()+".log")
	if s.LogPath != "" {
		// Relative paths are below the log folder, everything else as for sessions.
		path = proc.User{Home: env.User.Home}.Directory(s.LogPath, vars)
		if expanded := vars.Expand(s.LogPath); !filepath.IsAbs(expanded) && expanded[0] != '~' {
			path = filepath.Join(r.opts.LogDir, expanded)
		}
	}
	return openLog(path)
}
