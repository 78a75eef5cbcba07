package terraform

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/syntax"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// unusedFor is how long a template version stays in the cache without a job.
const unusedFor = 30 * 24 * time.Hour

var errInitTimeout = errors.New("terraform init took too long")

// maxRemembered bounds the analyses kept in memory.
const maxRemembered = 256

// cache holds template versions, unpacked and initialized, by the hash of their source. A version's folder appears
// complete or not at all and never changes afterwards, so that processes can share the cache.
type cache struct {
	dir         string
	host        *host.Host
	log         *slog.Logger
	initEnv     map[string]string // of init, in addition to the host's
	cli         cliConfig
	initTimeout time.Duration

	opened *prometheus.CounterVec // result: hit, miss
	init   prometheus.Histogram

	mu      sync.Mutex // guards entries and tidied
	entries map[string]*cacheEntry
	tidied  time.Time
}

type cacheEntry struct {
	busy     chan struct{} // holds one token: its holder may make the version
	template *template.Source
}

// opening is what the cache needs of a job to make its template.
type opening struct {
	sum    string                                       // of the source archive, SHA-256 in hex
	source func(context.Context) (io.ReadCloser, error) // opens that archive
	bare   bool                                         // without what init would make
	slot   *host.Slot                                   // where init runs
	log    *result.Log                                  // of the job
	stop   <-chan struct{}                              // closed when the job is asked to stop
	// explain describes the failure of a Terraform command for users.
	explain func(doing string, err error, out *result.Output) error
}

// newCache returns the cache of a host's cache folder, and registers its metrics unless metrics is nil.
func newCache(
	h *host.Host, log *slog.Logger, cli cliConfig, initTimeout time.Duration, metrics prometheus.Registerer,
) *cache {
	c := &cache{
		dir: filepath.Join(h.CacheDir(), "templates"), host: h, log: log, initEnv: initEnv(), cli: cli,
		initTimeout: initTimeout,
		entries:     map[string]*cacheEntry{},
		opened: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "codermesh", Subsystem: "terraform",
			Name: "template_cache_total",
			Help: "Templates that jobs opened, by result: hit when the version was unpacked and initialized already, " +
				"else miss."}, []string{"result"}),
		init: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "codermesh", Subsystem: "terraform",
			Name: "init_duration_seconds",
			Help: "How long terraform init took.", Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}}),
	}
	if metrics != nil {
		metrics.MustRegister(c.opened, c.init)
	}
	c.removeUnused()
	return c
}

// removeUnused deletes versions that no job has used for a long time, and what a killed process left incomplete. It
// does so at most once per tidyEvery.
func (c *cache) removeUnused() {
	c.mu.Lock()
	due := c.tidied.IsZero() || time.Since(c.tidied) >= tidyEvery
	if due {
		c.tidied = time.Now()
	}
	c.mu.Unlock()
	if !due {
		return
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		c.log.Warn("tidy template cache", "err", err)
		return
	}
	for _, entry := range entries {
		info, err := entry.Info()
		keep := unusedFor
		if strings.HasPrefix(entry.Name(), ".tmp-") {
			keep = 24 * time.Hour
		}
		if err != nil || time.Since(info.ModTime()) < keep {
			continue
		}
		if err := removeReadOnly(filepath.Join(c.dir, entry.Name())); err != nil {
			c.log.Warn("tidy template cache", "err", err)
		}
	}
	if err := tidyStore(filepath.Dir(c.dir)); err != nil {
		c.log.Warn("tidy template cache", "err", err)
	}
}

// open returns the job's template, from the cache or newly made. The returned template is shared and read-only.
func (c *cache) open(ctx context.Context, o opening) (*template.Source, error) {
	sum := strings.ToLower(o.sum)
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
		return nil, fmt.Errorf("open template: the offer has no hash of the source")
	}
	key := sum[:40] + "-" + c.host.Program().Product + "-" + c.host.Program().Version
	if o.bare {
		key += "-bare" // without what init would make
	}
	entry := c.entry(key)
	select {
	case <-entry.busy:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-o.stop:
		return nil, errCanceled
	}
	defer func() { entry.busy <- struct{}{} }()
	dir := filepath.Join(c.dir, key)
	if entry.template != nil {
		if c.touch(dir) == nil {
			c.opened.WithLabelValues("hit").Inc()
			return entry.template, nil
		}
		entry.template = nil
	}
	if c.touch(dir) == nil {
		c.opened.WithLabelValues("hit").Inc()
	} else {
		c.opened.WithLabelValues("miss").Inc()
		c.removeUnused()
		if err := c.make(ctx, o, sum, dir); err != nil {
			return nil, err
		}
	}
	t, err := template.Read(dir)
	if err != nil {
		return nil, err
	}
	entry.template = t
	return t, nil
}

func (c *cache) entry(key string) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) > maxRemembered {
		// Users keep the entries that they use; at worst, two makers of one version do the work twice.
		clear(c.entries)
	}
	entry := c.entries[key]
	if entry == nil {
		entry = &cacheEntry{busy: make(chan struct{}, 1)}
		entry.busy <- struct{}{}
		c.entries[key] = entry
	}
	return entry
}

// touch records that a version is in use. It fails if the version does not exist.
func (c *cache) touch(dir string) error {
	now := time.Now()
	return os.Chtimes(dir, now, now)
}

// make unpacks and initializes a version beside the cache and moves it into place.
func (c *cache) make(ctx context.Context, o opening, sum, dir string) (err error) {
	if err := c.host.MakeCache(); err != nil {
		return fmt.Errorf("make template: %w", err)
	}
	tmp := filepath.Join(c.dir, ".tmp-"+strings.ToLower(rand.Text()[:16]))
	defer func() { err = errors.Join(err, removeReadOnly(tmp)) }()
	src := filepath.Join(tmp, "src")
	for _, d := range []string{tmp, src, filepath.Join(tmp, "h"), filepath.Join(tmp, "t")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("make template: %w", err)
		}
		if d == tmp {
			continue // init works in it, and must not replace what the daemon uses later
		}
		if err := o.slot.Own(d); err != nil {
			return fmt.Errorf("make template: %w", err)
		}
	}
	if err := c.unpack(ctx, o, sum, src); err != nil {
		return err
	}
	t, err := template.Read(src)
	if err != nil {
		return err
	}
	if len(t.Backends) > 0 {
		// The server keeps a workspace's state, whatever backend the template names.
		if err := replaceFile(src, template.BackendOverride, []byte(backendOverride)); err != nil {
			return fmt.Errorf("make template: %w", err)
		}
	}
	if t.NeedsInit && !o.bare {
		err := phase(ctx, "terraform init", func(ctx context.Context) error { return c.initialize(ctx, o, tmp, src) })
		if err != nil {
			return err
		}
		if err := settleProviders(src); err != nil {
			return err
		}
	} else if err := host.RemoveFile(filepath.Join(src, lockName)); err != nil {
		return err
	}
	if err := closeTree(src); err != nil {
		return err
	}
	if t.NeedsInit && !o.bare {
		// If sharing fails the version works as well, but takes more disk space.
		if err := share(filepath.Dir(c.dir), path.Join(versionsDir, filepath.Base(tmp), "src")); err != nil {
			c.log.Warn("cannot share providers among templates", "err", err)
		}
	}
	err = os.Rename(src, dir)
	if err != nil && c.touch(dir) == nil {
		return nil // another process was faster
	}
	if err != nil {
		return fmt.Errorf("make template: %w", err)
	}
	return nil
}

const (
	lockName        = ".terraform.lock.hcl"
	backendOverride = "terraform {\n  backend \"local\" {}\n}\n"
)

// unpack fetches and extracts the source into dir and checks its hash.
func (c *cache) unpack(ctx context.Context, o opening, sum, dir string) error {
	source, err := o.source(ctx)
	if err != nil {
		return fmt.Errorf("fetch template: %w", err)
	}
	defer source.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("unpack template: %w", err)
	}
	defer root.Close()
	hash := sha256.New()
	in := io.TeeReader(source, hash)
	if err := extract(root, in); err != nil {
		return err
	}
	// The tar reader stops at the end mark, but the hash covers the whole file.
	if _, err := io.Copy(io.Discard, io.LimitReader(in, maxSourceBytes)); err != nil {
		return fmt.Errorf("fetch template: %w", err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return fault.New(fault.Unavailable, "the template's source arrived damaged: try again").
			WithDetail("hash %s, expected %s", got, sum)
	}
	return nil
}

// initialize runs `terraform init` in src and removes the hashes from the lock file, so that jobs do not read every
// provider in full each time: the content of the cache was verified here.
func (c *cache) initialize(ctx context.Context, o opening, tmp, src string) (err error) {
	o.log.Enter(result.StageInit)
	pidFile := filepath.Join(c.host.RunDir(), "i"+filepath.Base(tmp))
	command := filepath.Join(c.host.RunDir(), "x"+filepath.Base(tmp)) // the file of its sandbox
	env := map[string]string{"HOME": filepath.Join(tmp, "h"), "TMPDIR": filepath.Join(tmp, "t")}
	for _, more := range []map[string]string{c.host.JobEnv(), c.initEnv} {
		for name, value := range more {
			env[name] = value
		}
	}
	g := host.Grant{Write: []string{src, env["HOME"], env["TMPDIR"], o.slot.Tmp()}}
	delete(env, pluginCache)
	env["GIT_CEILING_DIRECTORIES"] = tmp
	closeProxy, err := c.configure(ctx, o, tmp, env, &g)
	if err != nil {
		return err
	}
	defer closeProxy()
	p := o.slot.Policy(g, pidFile)
	p.Dir, p.Env = src, host.Environ(env)
	if err := c.host.Store(p, command); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sandbox.Remove(command)) }()
	tf, err := host.NewTerraform(sandbox.Command(command))
	if err != nil {
		return err
	}
	attached, err := o.slot.Serve(ctx, host.Facts{Transition: "start"}, pidFile)
	if err != nil {
		return err
	}
	env[sandbox.ReattachVariable] = attached[sandbox.ReattachVariable]
	p.Env = host.Environ(env)
	if err := c.host.Store(p, command); err != nil {
		return err
	}
	out := result.NewOutput(o.log, nil)
	tf.SetStderr(result.NewStderr(o.log))
	// A registry or a repository that does not answer must not hold the slot forever.
	bounded, cancel := context.WithTimeoutCause(ctx, c.initTimeout, errInitTimeout)
	defer cancel()
	began := time.Now()
	err = o.slot.Bounded(bounded, func(ctx context.Context) error {
		return host.Supervise(ctx, o.stop, pidFile,
			func(gentle context.Context) error { return tf.InitJSON(gentle, out) })
	})
	if err != nil && ctx.Err() == nil && !stopped(o.stop) && errors.Is(context.Cause(bounded), errInitTimeout) {
		return fault.New(fault.Unavailable,
			"the template was not initialized within %s: terraform init waits for something that does not answer, "+
				"such as a module's repository or a provider's registry", c.initTimeout)
	}
	if err != nil {
		return o.explain("initialize the template", err, out)
	}
	c.init.Observe(time.Since(began).Seconds())
	return withoutHashes(src)
}

// configure gives init its CLI configuration: the operator's, with a proxy in place of registries that need a token.
// The caller calls closeProxy when init has ended.
func (c *cache) configure(
	ctx context.Context, o opening, tmp string, env map[string]string, g *host.Grant,
) (closeProxy func(), err error) {
	cli := c.cli
	if cli.invalid != nil {
		return nil, cli.invalid
	}
	if cli.initText == nil && len(cli.tokens) == 0 {
		return func() {}, nil
	}
	give := func(name string, text []byte) (string, error) {
		file := filepath.Join(tmp, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return "", fmt.Errorf("write terraform configuration: %w", err)
		}
		g.Read = append(g.Read, file)
		return file, o.slot.Own(file)
	}
	text := cli.initText
	if text == nil {
		text = []byte(emptyCLIConfig)
	}
	closeProxy = func() {}
	if len(cli.tokens) > 0 {
		var proxy *registryProxy
		if proxy, err = cli.serve(ctx); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				proxy.close()
			}
		}()
		closeProxy = proxy.close
		if text, err = proxy.config(text); err != nil {
			return nil, err
		}
		if proxy.mirror != nil {
			if env["SSL_CERT_FILE"], err = give("authorities.pem",
				proxy.mirror.trusted(env["SSL_CERT_FILE"])); err != nil {
				return nil, err
			}
		}
	}
	if env["TF_CLI_CONFIG_FILE"], err = give("terraformrc", text); err != nil {
		return nil, err
	}
	return closeProxy, nil
}

func withoutHashes(src string) error {
	root, err := os.OpenRoot(src)
	if err != nil {
		return fmt.Errorf("read lock file: %w", err)
	}
	defer root.Close()
	if _, err := root.Lstat(lockName); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text, err := template.ReadSource(root, lockName)
	if err != nil {
		return err
	}
	var parser syntax.Parser
	file, diags := parser.Editable(lockName, text)
	if diags.HasErrors() {
		return template.SyntaxError(diags)
	}
	for _, block := range file.Body().Blocks() {
		block.Body().RemoveAttribute("hashes")
	}
	if err := replaceFile(src, lockName, file.Bytes()); err != nil {
		return fmt.Errorf("write lock file: %w", err)
	}
	return nil
}

// replaceFile creates a file of ours in dir, in place of whatever has its name there: another account's file, or a
// link.
func replaceFile(dir, name string, text []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// closeTree makes everything below dir ours and read-only.
func closeTree(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("close template: %w", err)
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("close template: %w", err)
		}
		if os.Geteuid() == 0 {
			if err := root.Lchown(name, 0, 0); err != nil {
				return fmt.Errorf("close template: %w", err)
			}
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("close template: %w", err)
		}
		mode := fs.FileMode(0o444) | info.Mode().Perm()&0o111
		if entry.IsDir() {
			mode = 0o555
			if name == "." {
				mode = 0o755 // so that it can be moved and marked as used
			}
		}
		if err := root.Chmod(name, mode); err != nil {
			return fmt.Errorf("close template: %w", err)
		}
		return nil
	})
}

// removeReadOnly removes a tree that closeTree may have closed.
func removeReadOnly(dir string) error {
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil //nolint:nilerr // RemoveAll below says what is wrong
		}
		return os.Chmod(name, 0o755)
	})
	return errors.Join(err, os.RemoveAll(dir))
}

var errCanceled = errors.New("the job was canceled")

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// initEnv returns what only init sees: where to install from, and bounds on the programs that fetch modules. It holds
// no credentials. The settings that a repository could bring along do not count: no other transport than these, no
// repository without a .git folder, no hooks.
func initEnv() map[string]string {
	env := map[string]string{
		"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_GLOBAL": os.DevNull, "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
		"GIT_CONFIG_COUNT": "3",
		"GIT_CONFIG_KEY_0": "safe.bareRepository", "GIT_CONFIG_VALUE_0": "explicit",
		"GIT_CONFIG_KEY_1": "core.hooksPath", "GIT_CONFIG_VALUE_1": os.DevNull,
		"GIT_CONFIG_KEY_2": "core.fsmonitor", "GIT_CONFIG_VALUE_2": "false",
		"HGRCPATH": os.DevNull, "HGPLAIN": "1",
	}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "TF_REGISTRY_") {
			env[name] = value
		}
	}
	return env
}
