package terraform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/syntax"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// isolation is how templates are confined on this host: in bubblewrap's namespaces, by separate accounts, or both; and in any case by
// Landlock and a system call filter if the kernel supports them.
type isolation struct {
	none       bool // the operator wants no isolation
	abi        int  // Landlock's version, 0 when the kernel has none
	bubblewrap string
	accounts   *accounts
	mirrors    []string // folders that providers are linked from
	// concerns are what an operator should know about it, as sentences.
	concerns []string
}

// confined reports whether templates are kept from the daemon and from each other.
func (i isolation) confined() bool { return i.bubblewrap != "" || i.accounts != nil }

// countsProcesses reports whether the kernel counts a job's processes separately, by account or user namespace, so that a resource limit can
// bound them.
func (i isolation) countsProcesses() bool {
	return i.accounts != nil || i.bubblewrap != "" && sandbox.NamespacesCount()
}

func (i isolation) String() string {
	if i.none {
		return "none, environment allow-list"
	}
	var parts []string
	if i.bubblewrap != "" {
		parts = append(parts, "namespaces by bubblewrap")
	}
	if i.accounts != nil {
		parts = append(parts, "an account per job")
	}
	if i.abi > 0 {
		parts = append(parts, fmt.Sprintf("Landlock ABI %d", i.abi))
	}
	if sandbox.CallFilter(false) != nil {
		parts = append(parts, "system call filter")
	}
	return strings.Join(append(parts, "environment allow-list"), ", ")
}

// errUnconfined returns the error of an executor that could run templates only unconfined.
func errUnconfined(concerns []string) error {
	return fault.New(fault.Unavailable, "templates cannot be confined on this machine: %s", strings.Join(concerns, "; ")).
		WithDetail("Install bubblewrap, run as root, or accept that templates can do what this account can with --provisioner-isolation=none.")
}

// chooseIsolation determines what this host offers.
func (e *Executor) chooseIsolation(ctx context.Context, cli cliConfig) (isolation, error) {
	switch e.opts.Isolation {
	case "none":
		return isolation{none: true, concerns: []string{"templates can do what this account can: --provisioner-isolation is none"}}, nil
	case "", "auto":
	default:
		return isolation{}, fault.New(fault.Invalid, "isolation %q is unknown: use auto or none", e.opts.Isolation)
	}
	if err := errors.Join(e.checkDirs(), e.checkVisible()); err != nil {
		return isolation{}, err
	}
	i := isolation{abi: sandbox.LandlockABI(), mirrors: cli.mirrors}
	if i.abi == 0 {
		i.concerns = append(i.concerns, "the kernel has no Landlock")
	}
	concern := func(err error) { i.concerns = append(i.concerns, err.Error()) }
	if os.Geteuid() == 0 {
		claimed, err := claimAccounts()
		if err != nil {
			concern(err)
		}
		i.accounts = claimed
	}
	bubblewrap, err := findBubblewrap()
	if err == nil {
		with := i
		with.bubblewrap = bubblewrap
		if err = e.tryIsolation(ctx, with); err == nil {
			return with, e.openFor(with)
		} else if late(err) {
			return i, err // what works on a machine that is less busy is not given up for less
		}
		err = fmt.Errorf("bubblewrap does not work here: %w", err)
		if reason := forbidsUserNamespaces("/"); reason != "" && os.Geteuid() != 0 {
			err = fmt.Errorf("this machine forbids user namespaces to ordinary accounts (%s), see docs/provisioners.md: %w", reason, err)
		}
	}
	concern(err)
	if i.accounts != nil {
		err := errors.Join(e.checkShared(), e.openFor(i))
		if err == nil {
			if err = e.tryIsolation(ctx, i); late(err) {
				return i, err
			}
		}
		if err == nil {
			concern(errors.New("templates share /tmp and the unix sockets that everyone may use with this machine"))
			return i, nil
		}
		concern(fmt.Errorf("jobs cannot run under accounts of their own: %w", err))
		err = i.accounts.close()
		i.accounts = nil
		if err != nil {
			return i, err
		}
	}
	return i, nil
}

// forbidsUserNamespaces returns the setting of the kernel that keeps accounts other than root from creating user namespaces, or "". A machine
// may forbid them in other ways, too. root is the folder with proc in it.
func forbidsUserNamespaces(root string) string {
	for _, setting := range []struct{ name, forbids string }{
		{"user/max_user_namespaces", "0"},
		{"kernel/unprivileged_userns_clone", "0"},             // Debian's kernels
		{"kernel/apparmor_restrict_unprivileged_userns", "1"}, // Ubuntu, from 24.04 on
	} {
		text, err := os.ReadFile(filepath.Join(root, "proc/sys", setting.name))
		if err == nil && strings.TrimSpace(string(text)) == setting.forbids {
			return strings.ReplaceAll(setting.name, "/", ".") + " is " + setting.forbids
		}
	}
	return ""
}

// tryIsolation runs Terraform once the way that jobs will run it, unless that of e.opts.Like runs so.
func (e *Executor) tryIsolation(ctx context.Context, i isolation) (err error) {
	if like := e.opts.Like; like != nil && like.isolation.bubblewrap == i.bubblewrap && (like.isolation.accounts != nil) == (i.accounts != nil) {
		return nil
	}
	command := filepath.Join(e.runDir, "try")
	uid := 0
	if i.accounts != nil {
		uid = i.accounts.first
	}
	p := e.policyOf(i, uid, grant{}, command+".pid")
	p.Env = []string{"CHECKPOINT_DISABLE=1", "PATH=" + os.Getenv("PATH")}
	if err := p.Store(command, e.opts.Worker[0]); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sandbox.Remove(command)) }()
	defer os.Remove(p.PidFile)
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, sandbox.Command(command), "version")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = sandbox.ChildAttr()
	cmd.Cancel = func() error { return kill(-cmd.Process.Pid, syscall.SIGKILL) } // all of the sandbox has the pipe
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fault.New(fault.Unavailable, "%s did not answer in its sandbox in %s: %w", e.binary.path, versionTimeout, ctx.Err()).
			WithDetail("Start the provisioner again when the machine is less busy.")
	}
	if err != nil {
		return fmt.Errorf("run %s in it: %w: %s", e.binary.path, err, result.CleanLine(strings.TrimSpace(string(out))))
	}
	if !strings.Contains(string(out), e.binary.version) {
		return fmt.Errorf("run %s in it: it reports another version: %s", e.binary.path, result.CleanLine(strings.TrimSpace(string(out))))
	}
	return nil
}

// late reports whether a program did not answer in time, or was not waited for.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// checkDirs rejects daemon folders inside a folder that belongs to workspaces.
func (e *Executor) checkDirs() error {
	for _, dir := range []string{e.runDir, e.opts.CacheDir} {
		if below(dir, e.opts.WorkspacesDir) {
			return fault.New(fault.Invalid, "the folder %s lies in %s, which belongs to workspaces: choose another", dir, e.opts.WorkspacesDir)
		}
	}
	return nil
}

// checkShared rejects daemon folders that lie where templates may write, or that templates cannot reach, if templates share the host's view
// of folders.
func (e *Executor) checkShared() error {
	for _, dir := range []string{e.runDir, e.opts.CacheDir, e.opts.WorkspacesDir} {
		for _, open := range temporaryDirs {
			if below(dir, open) {
				return fmt.Errorf("the folder %s lies in %s, where templates write", dir, open)
			}
		}
	}
	for _, name := range []string{e.runDir, e.binary.path, e.opts.Worker[0], e.opts.CacheDir, e.opts.WorkspacesDir} {
		if obstacle, ok := reachable(name); !ok {
			return fmt.Errorf("the accounts of jobs cannot reach %s, because of %s", name, obstacle)
		}
	}
	return nil
}

// below reports whether name is dir or lies in it, with existing links resolved.
func below(name, dir string) bool {
	if resolved, err := filepath.EvalSymlinks(existing(dir)); err == nil {
		dir = filepath.Join(resolved, strings.TrimPrefix(dir, existing(dir)))
	}
	if resolved, err := filepath.EvalSymlinks(existing(name)); err == nil {
		name = filepath.Join(resolved, strings.TrimPrefix(name, existing(name)))
	}
	inside, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(inside)
}

// openFor gives the accounts of jobs access to what they need.
func (e *Executor) openFor(i isolation) error {
	if i.accounts == nil {
		return nil
	}
	for _, dir := range []string{filepath.Join(e.opts.CacheDir, "templates"), e.opts.WorkspacesDir} {
		if err := os.Chmod(dir, 0o711); err != nil {
			return fmt.Errorf("open %s: %w", dir, err)
		}
	}
	return nil
}

// cliConfig is Terraform's CLI configuration: the operator's is for init, which alone installs anything; jobs get an empty one, because the
// operator's holds registry credentials.
type cliConfig struct {
	jobFile  string
	initText []byte // the operator's without credentials, or nil
	invalid  error  // why the operator's cannot be used; Terraform, too, would report it at each init
	registries
	concerns []string
	mirrors  []string // folders that providers are linked from
}

// pluginCache is the variable for plugin_cache_dir. Neither has an effect: the folder would be shared by templates whose init writes into it, so
// one could put its own provider there under another's name, and replace what the versions of others link to. The daemon shares equal files itself
// (share.go).
const pluginCache = "TF_PLUGIN_CACHE_DIR"

func sharedPlugins(setting string) string {
	return setting + " has no effect: templates could change each other's providers there; name a filesystem_mirror or a network_mirror to save downloads"
}

const emptyCLIConfig = "disable_checkpoint = true\n"

func writeCLIConfig(runDir string) (cliConfig, error) {
	c := cliConfig{jobFile: filepath.Join(runDir, "terraformrc"), registries: registries{tokens: tokensOfEnvironment(os.Environ())}}
	if os.Getenv(pluginCache) != "" {
		c.concerns = append(c.concerns, sharedPlugins(pluginCache))
	}
	if err := os.WriteFile(c.jobFile, []byte(emptyCLIConfig), 0o644); err != nil {
		return c, fmt.Errorf("write terraform configuration: %w", err)
	}
	theirs := os.Getenv("TF_CLI_CONFIG_FILE")
	if theirs == "" {
		if home, err := os.UserHomeDir(); err == nil {
			theirs = filepath.Join(home, ".terraformrc")
		}
	}
	text, err := os.ReadFile(theirs)
	if err != nil {
		return c, nil //nolint:nilerr // as Terraform does, which only warns of a file that it cannot read
	}
	var concerns []string
	c.initText, c.registries, concerns, c.invalid = takeCredentials(theirs, text, c.tokens)
	c.concerns = append(c.concerns, concerns...)
	if c.invalid != nil {
		return c, nil //nolint:nilerr // init reports it, with the file
	}
	file, diags := new(syntax.Parser).Config(theirs, c.initText)
	if diags.HasErrors() {
		return c, fmt.Errorf("read terraform configuration: %w", diags)
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return c, nil
	}
	for _, installation := range body.Blocks {
		if installation.Type != "provider_installation" {
			continue
		}
		for _, method := range installation.Body.Blocks {
			if dir := stringAttribute(method.Body, "path"); method.Type == "filesystem_mirror" && dir != "" {
				c.mirrors = append(c.mirrors, dir)
			}
		}
	}
	return c, nil
}

// stringAttribute returns the value of a literal attribute, or "".
func stringAttribute(body *hclsyntax.Body, name string) string {
	attr, ok := body.Attributes[name]
	if !ok {
		return ""
	}
	return template.Literal(attr.Expr)
}
