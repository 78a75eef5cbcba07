package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/terraform-provider-coder/v2/provider"
	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/terraform-exec/tfexec"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// providerKey is the name of the coder provider in TF_REATTACH_PROVIDERS. Without a host, Terraform and OpenTofu both
// resolve it to their own default registry, which is also how templates name it.
const providerKey = "coder/coder"

// workerTimeout bounds how long a worker may take to serve after receiving its facts.
const workerTimeout = 20 * time.Second

// workerRequest is the one line that a worker reads.
type workerRequest struct {
	Env map[string]string `json:"env"`
	// UID and GID are the account to serve as; 0 keeps the caller's.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
	// Rehearsal makes Terraform mark what depends on the workspace's owner, see markOwner.
	Rehearsal bool `json:"rehearsal,omitempty"`
	// Limits bound the worker as they bound Terraform.
	Limits sandbox.Limits `json:"limits,omitzero"`
}

// workerConns is the descriptor over which a worker receives its connections.
const workerConns = 3

// ServeProvider is the provider worker: the program's hidden command "provider-worker". It reads one JSON line, makes
// that its whole environment, writes a line once it serves the coder provider and another if it fails, and returns when
// stdin ends. It has no listener: the daemon passes it connections over descriptor 3. Its standard error is noise and
// belongs in /dev/null.
func ServeProvider(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	served := provider.New() // before the facts arrive, because it is slow
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil // the worker was not needed
		}
		return fmt.Errorf("read facts: %w", err)
	}
	var request workerRequest
	if err := json.Unmarshal(line, &request); err != nil {
		return fmt.Errorf("decode facts: %w", err)
	}
	if err := errors.Join(request.Limits.Apply(), sandbox.BecomeUser(request.UID, request.GID)); err != nil {
		return err
	}
	os.Clearenv()
	for name, value := range request.Env {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if os.Getenv(provider.IsPrebuildClaimEnvironmentVariable()) == "true" {
		keepAgents(served)
	}
	if request.Rehearsal {
		markOwner(served)
	}
	inherited := os.NewFile(workerConns, "connections")
	conns, err := net.FileConn(inherited)
	if err != nil {
		return fmt.Errorf("open connections: %w", err)
	}
	inherited.Close() // conns has its own
	over, ok := conns.(*net.UnixConn)
	if !ok {
		return errors.New("open connections: not a unix socket")
	}
	server, err := providerServer(served)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(receivedConns{over}) }()
	defer server.Stop()
	if _, err := io.WriteString(stdout, "serving\n"); err != nil {
		return fmt.Errorf("report provider: %w", err)
	}
	unserved := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, in)
		unserved <- err
	}()
	select {
	case err := <-unserved:
		if err != nil {
			return fmt.Errorf("wait for the end: %w", err)
		}
		return nil
	case err := <-failed:
		if errors.Is(err, io.EOF) {
			return nil // the daemon is gone
		}
		err = fmt.Errorf("serve provider: %w", err)
		_, unsaid := fmt.Fprintln(stdout, err) // the daemon logs it
		return errors.Join(err, unsaid)
	case <-ctx.Done():
		return nil
	}
}

// providerServer serves a provider as go-plugin does, without go-plugin's listener, which any process could find.
func providerServer(p *schema.Provider) (*grpc.Server, error) {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	healthy := health.NewServer()
	healthy.SetServingStatus(goplugin.GRPCServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, healthy)
	registration := tf5server.GRPCProviderPlugin{
		Name:         "registry.terraform.io/coder/coder",
		GRPCProvider: func() tfprotov5.ProviderServer { return schema.NewGRPCProviderServer(p) },
		Opts:         []tf5server.ServeOpt{tf5server.WithGoPluginLogger(hclog.NewNullLogger())},
	}
	if err := registration.GRPCServer(nil, server); err != nil {
		return nil, fmt.Errorf("serve provider: %w", err)
	}
	return server, nil
}

// maxMessage is the limit of Terraform's own plugins, in bytes.
const maxMessage = 256 << 20

// worker is a running provider worker.
type worker struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan []byte   // holds its first line; closed when its output ends
	conns *net.UnixConn // carries connections to it
	gate  *gate         // nil before it serves
	log   *slog.Logger
	// closing is set before the daemon ends the worker.
	closing atomic.Bool
	done    chan struct{}
	end     string // how it ended, for users; written before done is closed
}

// maxReason bounds what a worker writes about its end, in bytes.
const maxReason = 4 << 10

// startWorker starts a worker that waits for its facts.
func startWorker(argv []string, log *slog.Logger) (*worker, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2"}
	cmd.SysProcAttr = sandbox.ChildAttr()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start provider worker: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start provider worker: %w", err)
	}
	conns, theirs, err := connPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd.ExtraFiles = []*os.File{theirs} // the descriptor workerConns
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start provider worker: %w", err), conns.Close())
	}
	w := &worker{cmd: cmd, stdin: stdin, lines: make(chan []byte, 1), conns: conns, log: log, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer close(w.lines)
		out := bufio.NewReader(io.LimitReader(stdout, 1<<20))
		if line, err := out.ReadBytes('\n'); err == nil {
			w.lines <- line
		}
		reason, _ := io.ReadAll(io.LimitReader(out, maxReason)) // after an error the reason is incomplete
		// An unread pipe would stop the worker.
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait() // it is always killed, so it always fails
		w.end = cmd.ProcessState.String()
		if said := strings.TrimSpace(string(reason)); said != "" {
			w.end += ": " + tty.Clean(said)
		}
		if !w.closing.Load() {
			log.Warn("provider worker ended on its own", "reason", w.end)
		}
	}()
	return w, nil
}

// serve passes the worker its facts and returns how Terraform reaches it: through a gate in the job's TMPDIR that
// admits the processes noted in the pid files and their descendants. It blocks until the worker serves, ctx ends, or
// workerTimeout expires.
func (w *worker) serve(ctx context.Context, request workerRequest, pidFiles ...string) (tfexec.ReattachInfo, error) {
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
	case _, ok := <-w.lines:
		if !ok {
			<-w.done
			return nil, fmt.Errorf("the provider worker ended before it served: %s", w.end)
		}
	case <-timeout.C:
		return nil, errors.New("the provider worker did not answer")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	path := filepath.Join(request.Env["TMPDIR"], "provider")
	hand := func(conn *net.UnixConn) error { return passConn(w.conns, conn) }
	if w.gate, err = openGate(path, request.UID, request.GID, admitJob(request.UID, pidFiles), hand,
		w.log); err != nil {
		return nil, err
	}
	return tfexec.ReattachInfo{providerKey: tfexec.ReattachConfig{
		Protocol: string(goplugin.ProtocolGRPC), ProtocolVersion: 5, Test: true, // the sandbox adds a Pid, see watching
		Addr: tfexec.ReattachConfigAddr{Network: "unix", String: path},
	}}, nil
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
	w.closing.Store(true)
	_ = w.cmd.Process.Kill() // it may have ended already
	_ = w.stdin.Close()
	<-w.done
	w.conns.Close()
	if w.gate != nil {
		w.gate.close()
	}
}
