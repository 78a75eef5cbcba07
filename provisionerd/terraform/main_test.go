package terraform_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/coder/terraform-provider-coder/v2/provider"
	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-sdk/v2/plugin"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/launcher"
)

// TestMain makes the test binary act as the whole program: it is also the provider worker and the sandbox.
func TestMain(m *testing.M) {
	spyStart()
	if strings.HasPrefix(filepath.Base(os.Args[0]), pluginMark+"evil") {
		if script, err := os.ReadFile("evil.sh"); err == nil { // otherwise it is an honest provider
			_ = exec.Command("setsid", "sh", "-c", string(script)).Start()
		}
	}
	if p := standIn(os.Args[0]); p != nil {
		plugin.Serve(&plugin.ServeOpts{ProviderFunc: p})
		return
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), pluginMark) {
		plugin.Serve(&plugin.ServeOpts{ProviderFunc: provider.New})
		return
	}
	if is, err := launcher.Main(os.Args); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 {
		var err error
		switch os.Args[1] {
		case "provider-worker":
			err = host.ServeProvider(context.Background(), os.Stdin, os.Stdout)
		case "doomed":
			err = runDoomed(os.Args[2:])
		default:
			attack, ok := attackers[os.Args[1]]
			if !ok {
				goleak.VerifyTestMain(m)
				return
			}
			err = attack(os.Args[2:])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// options returns options for an executor with folders of its own.
func options(tb testing.TB) terraform.Options {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	run, err := os.MkdirTemp("", "cm") // tb.TempDir is too long for unix sockets
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(run); err != nil {
			tb.Error(err)
		}
	})
	cache := tb.TempDir()
	tb.Cleanup(func() {
		// The cache is read-only, even for the plain user who may run the tests.
		err := filepath.WalkDir(cache, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				err = os.Chmod(name, 0o700)
			}
			return err
		})
		if err != nil {
			tb.Error(err)
		}
	})
	return terraform.Options{
		CacheDir: cache, RunDir: run, WorkspacesDir: filepath.Join(tb.TempDir(), "ws"),
		Worker: []string{self, "provider-worker"}, Slots: 1,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), nil)),
	}
}

// processes returns the host's numbers of the processes whose command line or environment contains the mark.
func processes(tb testing.TB, mark string) []string {
	tb.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		tb.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		dir := filepath.Join("/proc", entry.Name())
		if entry.Name()[0] < '0' || entry.Name()[0] > '9' || entry.Name() == fmt.Sprint(os.Getpid()) {
			continue
		}
		// A process may end during the search.
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if bytes.Contains(command, []byte(mark)) || bytes.Contains(environment, []byte(mark)) {
			found = append(found, entry.Name())
		}
	}
	return found
}

// appear waits until n processes have the mark.
func appear(tb testing.TB, mark string, n int) []string {
	tb.Helper()
	var found []string
	testwait.Until(tb, "processes with the mark "+mark+" start", func() error {
		if found = processes(tb, mark); len(found) < n {
			return fmt.Errorf("%d of %d", len(found), n)
		}
		return nil
	})
	return found
}

// vanish waits until no process with the mark is left.
func vanish(tb testing.TB, mark string) {
	tb.Helper()
	testwait.Until(tb, "processes with the mark "+mark+" end", func() error {
		if found := processes(tb, mark); len(found) > 0 {
			return fmt.Errorf("%v run", found)
		}
		return nil
	})
}

// usualPath is the PATH with which the tests began: with another one, a test has other programs.
var usualPath = os.Getenv("PATH")

// usual is an executor that has found out about Terraform and what confines it here, for those of most tests.
var usual = sync.OnceValues(func() (_ *terraform.Executor, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cm")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	e, err := terraform.New(context.Background(), terraform.Options{
		CacheDir: filepath.Join(dir, "cache"), RunDir: dir, WorkspacesDir: filepath.Join(dir, "ws"), Worker: []string{self, "provider-worker"}, Slots: -1,
	})
	if err != nil {
		return nil, err
	}
	return e, e.Close()
})

func newExecutor(tb testing.TB, change ...func(*terraform.Options)) *terraform.Executor {
	tb.Helper()
	opts := options(tb)
	for _, f := range change {
		f(&opts)
	}
	if opts.Like == nil && opts.Binary == "" && opts.Isolation == "" && os.Getenv("PATH") == usualPath {
		if like, err := usual(); err == nil { // otherwise New says what is wrong
			opts.Like = like
		}
	}
	e, err := terraform.New(context.Background(), opts)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return e
}

// recorder is a sink that keeps everything and reports every line.
type recorder struct {
	mu           sync.Mutex
	lines        []*provisionerpb.LogLine
	checkpoints  [][]byte
	changes      []*provisionerpb.Change
	onLine       func(string)
	onChange     func(*provisionerpb.Change)
	onCheckpoint func([]byte)
	onResources  func([]*provisionerpb.Resource)
}

func (r *recorder) Log(line *provisionerpb.LogLine) {
	r.mu.Lock()
	r.lines = append(r.lines, line)
	on := r.onLine
	r.mu.Unlock()
	if on != nil {
		on(line.GetOutput())
	}
}

func (r *recorder) Change(c *provisionerpb.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
	if r.onChange != nil {
		r.onChange(c)
	}
}

func (r *recorder) Checkpoint(state []byte) {
	r.mu.Lock()
	r.checkpoints = append(r.checkpoints, state)
	on := r.onCheckpoint
	r.mu.Unlock()
	if on != nil {
		on(state)
	}
}

func (r *recorder) Resources(resources []*provisionerpb.Resource) {
	r.mu.Lock()
	on := r.onResources
	r.mu.Unlock()
	if on != nil {
		on(resources)
	}
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all strings.Builder
	for _, line := range r.lines {
		fmt.Fprintf(&all, "[%s] %s %s\n", line.GetStage(), line.GetLevel(), line.GetOutput())
	}
	return all.String()
}

// files makes a template's files; a single text is main.tf, preceded by a requirement for the coder provider.
func files(main string) map[string]string {
	return map[string]string{"main.tf": "terraform {\n  required_providers {\n    coder = { source = \"coder/coder\" }\n  }\n}\n" + main}
}

func tarOf(tb testing.TB, content map[string]string) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(content)) {
		text := content[name]
		mode := int64(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// trial is a job being prepared.
type trial struct {
	source []byte
	slot   int
	sink   *recorder
	stop   chan struct{}
	ctx    context.Context
	id     uuid.UUID
}

func newTrial(tb testing.TB, content map[string]string) *trial {
	return &trial{source: tarOf(tb, content), sink: &recorder{}, stop: make(chan struct{}), ctx: tb.Context(), id: uuid.New()}
}

func (j *trial) do(e job.Executor, offer *provisionerpb.Offer) *provisionerpb.Result {
	sum := sha256.Sum256(j.source)
	offer.JobId, offer.Epoch, offer.SourceSha256 = j.id[:], 1, hex.EncodeToString(sum[:])
	return e.Run(j.ctx, j.stop, job.Run{
		Offer: offer, Slot: j.slot, Sink: j.sink,
		Source: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(j.source)), nil },
	})
}

func (j *trial) build(e job.Executor, build *provisionerpb.WorkspaceBuild) *provisionerpb.Result {
	if build.Metadata == nil {
		build.Metadata = metadata()
	}
	return j.do(e, &provisionerpb.Offer{Job: &provisionerpb.Offer_WorkspaceBuild{WorkspaceBuild: build}})
}

func (j *trial) importIt(e job.Executor, work *provisionerpb.TemplateImport) *provisionerpb.Result {
	if work.Metadata == nil {
		work.Metadata = &provisionerpb.Metadata{AccessUrl: "http://127.0.0.1:3000"}
	}
	return j.do(e, &provisionerpb.Offer{Job: &provisionerpb.Offer_TemplateImport{TemplateImport: work}})
}

var (
	workspaceID = uuid.MustParse("11111111-1111-4111-8111-111111111111")
	ownerID     = uuid.MustParse("22222222-2222-4222-8222-222222222222")
	buildID     = uuid.MustParse("33333333-3333-4333-8333-333333333333")
	templateID  = uuid.MustParse("44444444-4444-4444-8444-444444444444")
)

func metadata() *provisionerpb.Metadata {
	return &provisionerpb.Metadata{
		AccessUrl: "http://127.0.0.1:3000", WorkspaceId: workspaceID[:], WorkspaceName: "dev", BuildId: buildID[:],
		OwnerId: ownerID[:], OwnerName: "ann", OwnerEmail: "ann@example.com", OwnerFullName: "Ann Onymous",
		OwnerGroups: []string{"devs"}, OwnerLoginType: "password", OwnerRoles: []string{"owner"},
		OwnerSshPublicKey: "ssh-ed25519 AAAA", OwnerSshPrivateKey: "PRIVATE-KEY-SECRET", OwnerSessionToken: "SESSION-TOKEN-SECRET",
		TemplateId: templateID[:], TemplateName: "t", TemplateVersion: "v1",
	}
}

// ok fails the test if the job failed.
func ok(tb testing.TB, j *trial, result *provisionerpb.Result) *provisionerpb.BuildResult {
	tb.Helper()
	if result.GetError() != "" {
		tb.Fatalf("job failed: %s (%s)\n%s", result.GetError(), result.GetErrorCode(), j.sink.text())
	}
	return result.GetWorkspaceBuild()
}

const (
	start  = provisionerpb.Transition_TRANSITION_START
	stop   = provisionerpb.Transition_TRANSITION_STOP
	remove = provisionerpb.Transition_TRANSITION_DELETE
)
