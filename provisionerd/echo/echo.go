// Package echo runs provisioner jobs without Terraform: the template's source lists the events of each job. It serves
// tests of the daemon and of coderd, and knows neither.
//
// The source is a tar with a file echo.json:
//
//	{
//	  "import": [{"result": {"templateImport": {}}}],
//	  "start":  [{"log": "hello", "stage": "Starting workspace"}, {"resources": [...]}, {"result": {"workspaceBuild": {}}}],
//	  "stop":   [...], "delete": [...], "dry_run": [...]
//	}
//
// A kind of job that is not listed succeeds at once; a start, stop or delete then keeps its state. Messages are in
// protobuf's JSON.
package echo

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

// Event is one step of a job. Exactly one of its fields is set, apart from Stage.
type Event struct {
	Log        string            `json:"log,omitempty"`
	Stage      string            `json:"stage,omitempty"`
	Checkpoint string            `json:"checkpoint,omitempty"` // a state
	Change     json.RawMessage   `json:"change,omitempty"`     // a step of a change to a resource
	Resources  []json.RawMessage `json:"resources,omitempty"`
	// WaitFile holds the job until the file exists, it is stopped, or its context ends.
	WaitFile string `json:"wait_file,omitempty"`
	// WaitStop holds the job until it is stopped or its context ends, and then lets it fail as canceled.
	WaitStop bool            `json:"wait_stop,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
}

// Script is the content of echo.json: events by kind of job.
type Script map[string][]Event

// Archive returns the tar of a template that runs s.
func (s Script) Archive() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode script: %w", err)
	}
	var out writer
	w := tar.NewWriter(&out)
	header := &tar.Header{Name: "echo.json", Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}
	if err := w.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("write archive: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return nil, fmt.Errorf("write archive: %w", err)
	}
	return out, errors.Join(w.Close())
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

var _ job.Executor = (*Executor)(nil)

// Executor runs scripts. The zero value is ready.
type Executor struct {
	mu      sync.Mutex
	scripts map[string]Script // by the source's hash
	left    map[lease][]byte
}

// Name implements job.Executor.
func (e *Executor) Name() string { return "echo" }

// Close implements job.Executor.
func (e *Executor) Close() error { return nil }

// Leave makes Recover return a state for a job, as if a killed process had left it.
func (e *Executor) Leave(jobID [16]byte, epoch uint64, state []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left == nil {
		e.left = map[lease][]byte{}
	}
	e.left[lease{jobID, epoch}] = state
}

// Recover implements job.Executor.
func (e *Executor) Recover(_ context.Context, jobID [16]byte, epoch uint64, known job.Known) (job.Remains, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	state := e.left[lease{jobID, epoch}]
	delete(e.left, lease{jobID, epoch})
	if state == nil {
		state = known.Checkpoint
	}
	outcome, state := tfstate.Settle(state, known.Changes, false)
	return job.Remains{State: state, Unknown: outcome.Unknown, Tainted: outcome.Tainted}, nil
}

type lease struct {
	job   [16]byte
	epoch uint64
}

// Run implements job.Executor.
func (e *Executor) Run(ctx context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
	script, err := e.script(ctx, run)
	if err != nil {
		return &provisionerpb.Result{Error: err.Error()}
	}
	kind, result := defaults(run.Offer)
	for _, event := range script[kind] {
		done, err := perform(ctx, stop, run.Sink, event, result)
		if err != nil {
			result.Error = err.Error()
			if ctx.Err() != nil || errors.Is(err, errStopped) {
				result.Canceled, result.ErrorCode = true, "CANCELED"
			}
			return result
		}
		if done {
			return result
		}
	}
	return result
}

var errStopped = errors.New("the job was canceled")

// defaults returns the kind of a job and its default result.
func defaults(offer *provisionerpb.Offer) (kind string, result *provisionerpb.Result) {
	switch work := offer.GetJob().(type) {
	case *provisionerpb.Offer_TemplateImport:
		return "import",
			&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: &provisionerpb.ImportResult{}}}
	case *provisionerpb.Offer_TemplateDryRun:
		return "dry_run",
			&provisionerpb.Result{Of: &provisionerpb.Result_TemplateDryRun{TemplateDryRun: &provisionerpb.DryRunResult{}}}
	case *provisionerpb.Offer_WorkspaceBuild:
		kind = map[provisionerpb.Transition]string{
			provisionerpb.Transition_TRANSITION_START:  "start",
			provisionerpb.Transition_TRANSITION_STOP:   "stop",
			provisionerpb.Transition_TRANSITION_DELETE: "delete",
		}[work.WorkspaceBuild.GetTransition()]
		return kind, &provisionerpb.Result{Of: &provisionerpb.Result_WorkspaceBuild{
			WorkspaceBuild: &provisionerpb.BuildResult{State: work.WorkspaceBuild.GetState()},
		}}
	default:
		return "", &provisionerpb.Result{Error: "unknown kind of job"}
	}
}

// perform performs one event. After a result, which it copies to result, it returns true.
func perform(
	ctx context.Context, stop <-chan struct{}, sink job.Sink, event Event, result *provisionerpb.Result,
) (done bool, err error) {
	switch {
	case event.Result != nil:
		given := &provisionerpb.Result{}
		if err := protojson.Unmarshal(event.Result, given); err != nil {
			return false, fmt.Errorf("decode result: %w", err)
		}
		result.Error, result.ErrorCode, result.Canceled = given.Error, given.ErrorCode, given.Canceled
		if given.Of != nil {
			result.Of = given.Of
		}
		return true, nil
	case event.Change != nil:
		change := &provisionerpb.Change{}
		if err := protojson.Unmarshal(event.Change, change); err != nil {
			return false, fmt.Errorf("decode change: %w", err)
		}
		sink.Change(change)
	case event.Checkpoint != "":
		sink.Checkpoint([]byte(event.Checkpoint))
	case event.Resources != nil:
		var resources []*provisionerpb.Resource
		for _, raw := range event.Resources {
			r := &provisionerpb.Resource{}
			if err := protojson.Unmarshal(raw, r); err != nil {
				return false, fmt.Errorf("decode resource: %w", err)
			}
			resources = append(resources, r)
		}
		sink.Resources(resources)
	case event.WaitStop:
		select {
		case <-stop:
			return false, errStopped
		case <-ctx.Done():
			return false, ctx.Err()
		}
	case event.WaitFile != "":
		return false, waitFile(ctx, stop, event.WaitFile)
	default:
		sink.Log(&provisionerpb.LogLine{
			At: timestamppb.Now(), Level: provisionerpb.LogLevel_LOG_LEVEL_INFO,
			Source: provisionerpb.LogSource_LOG_SOURCE_EXECUTOR,
			Stage:  event.Stage, Output: event.Log,
		})
	}
	return false, nil
}

func waitFile(ctx context.Context, stop <-chan struct{}, name string) error {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		if _, err := os.Stat(name); err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-stop:
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// script reads the job's script, from memory if the source was seen before.
func (e *Executor) script(ctx context.Context, run job.Run) (Script, error) {
	sum := run.Offer.GetSourceSha256()
	e.mu.Lock()
	known, ok := e.scripts[sum]
	e.mu.Unlock()
	if ok && sum != "" {
		return known, nil
	}
	source, err := run.Source(ctx)
	if err != nil {
		return nil, fmt.Errorf("fetch template: %w", err)
	}
	defer source.Close()
	script, err := readScript(source)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.scripts == nil {
		e.scripts = map[string]Script{}
	}
	e.scripts[sum] = script
	return script, nil
}

func readScript(source io.Reader) (Script, error) {
	files := tar.NewReader(source)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return Script{}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read template: %w", err)
		}
		if header.Name != "echo.json" {
			continue
		}
		var script Script
		if err := json.NewDecoder(io.LimitReader(files, 16<<20)).Decode(&script); err != nil {
			return nil, fmt.Errorf("decode echo.json: %w", err)
		}
		return script, nil
	}
}
