package terraform

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/coder/terraform-provider-coder/v2/provider"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/terraform-exec/tfexec"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	"github.com/hashicorp/terraform-plugin-sdk/v2/plugin"
)

// providerKey is how the coder provider is named in TF_REATTACH_PROVIDERS. Without a host, Terraform and OpenTofu both
// resolve it to their own default registry, which is also how templates name it.
const providerKey = "coder/coder"

// workerTimeout bounds how long a worker may take to serve after it got its facts.
const workerTimeout = 20 * time.Second

// workerRequest is the one line a worker reads.
type workerRequest struct {
	Env map[string]string `json:"env"`
	// UID and GID are the account to serve as; 0 keeps the caller's.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
	// Limits bound the worker as they bound Terraform.
	Limits Limits `json:"limits,omitzero"`
}

// ServeProvider is the provider worker: the program's hidden command "provider-worker". It reads one JSON line, makes that
// its whole environment, serves the coder provider on a unix socket in TMPDIR, writes where to find it as one JSON line, and
// returns when stdin ends. Its standard error is noise and belongs in /dev/null.
func ServeProvider(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	served := provider.New() // ahead of the facts: it is the slow part
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil // never needed
		}
		return fmt.Errorf("read facts: %w", err)
	}
	var request workerRequest
	if err := json.Unmarshal(line, &request); err != nil {
		return fmt.Errorf("decode facts: %w", err)
	}
	os.Clearenv()
	for name, value := range request.Env {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if err := errors.Join(request.Limits.apply(), becomeUser(request.UID, request.GID)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := plugin.ServeOpts{
		ProviderFunc:        func() *schema.Provider { return served },
		ProviderAddr:        "registry.terraform.io/coder/coder",
		NoLogOutputOverride: true,
		Logger:              hclog.NewNullLogger(),
	}
	where, closed, err := plugin.DebugServe(ctx, &options)
	if err != nil {
		return fmt.Errorf("serve provider: %w", err)
	}
	if err := json.NewEncoder(stdout).Encode(where); err != nil {
		return fmt.Errorf("report provider: %w", err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("wait for the end: %w", err)
	}
	cancel()
	<-closed
	return nil
}

// worker is a running provider worker.
type worker struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan []byte // its one line; closed when its output ends
	done  chan struct{}
}

// startWorker starts a worker that waits for its facts.
func startWorker(argv []string) (*worker, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2"}
	cmd.SysProcAttr = childAttr()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start provider worker: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start provider worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start provider worker: %w", err)
	}
	w := &worker{cmd: cmd, stdin: stdin, lines: make(chan []byte, 1), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer close(w.lines)
		out := bufio.NewReader(io.LimitReader(stdout, 1<<20))
		if line, err := out.ReadBytes('\n'); err == nil {
			w.lines <- line
		}
		// The rest is of no use, but an unread pipe would stop the worker.
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait() // it is always killed, so it always fails
	}()
	return w, nil
}

// serve hands the worker its facts and returns how Terraform reaches it. Blocks until it serves, ctx ends, or workerTimeout.
func (w *worker) serve(ctx context.Context, request workerRequest) (tfexec.ReattachInfo, error) {
	line, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode facts: %w", err)
	}
	if _, err := w.stdin.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("hand facts to the provider worker: %w", err)
	}
	timeout := time.NewTimer(workerTimeout)
	defer timeout.Stop()
	select {
	case answer, ok := <-w.lines:
		if !ok {
			return nil, errors.New("the provider worker ended before it served")
		}
		var where tfexec.ReattachConfig
		if err := json.Unmarshal(answer, &where); err != nil {
			return nil, fmt.Errorf("decode the provider worker's answer: %w", err)
		}
		return tfexec.ReattachInfo{providerKey: where}, nil
	case <-timeout.C:
		return nil, errors.New("the provider worker did not answer")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// alive reports whether the worker has not ended.
func (w *worker) alive() bool {
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// close ends the worker and waits for it.
func (w *worker) close() {
	_ = w.cmd.Process.Kill() // it may have ended already
	_ = w.stdin.Close()
	<-w.done
}
