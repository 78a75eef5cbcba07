package terraform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/syntax"
)

// isolation is how templates are confined on this host.
type isolation struct {
	abi     int // Landlock's version, 0 when it is not used
	account string
	uid     int // 0 keeps ours
	gid     int
	groups  []int
	show    []string // what the account cannot reach without a mount namespace; empty for none needed
	write   []string
	read    []string
	initUse []string // read in addition while init runs
	initMod []string // written in addition while init runs
	// concerns are what an operator should know about it, as sentences.
	concerns []string
}

func (i isolation) String() string {
	var parts []string
	if i.abi > 0 {
		parts = append(parts, fmt.Sprintf("Landlock ABI %d", i.abi))
	}
	if i.uid != 0 {
		parts = append(parts, "account "+i.account)
	}
	return strings.Join(append(parts, "environment allow-list"), ", ")
}

// chooseIsolation finds out what this host offers.
func (e *Executor) chooseIsolation(ctx context.Context, cli *cliConfig) (isolation, error) {
	switch e.opts.Isolation {
	case "none":
		return isolation{}, nil
	case "", "auto":
	default:
		return isolation{}, fault.New(fault.Invalid, "isolation %q is unknown: use auto or none", e.opts.Isolation)
	}
	i := isolation{
		abi: landlockABI(),
		write: []string{
			e.opts.WorkspacesDir, "/tmp", "/var/tmp", "/dev/shm",
			"/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts",
		},
		read: append([]string{
			"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix", "/proc", "/sys",
			"/dev/random", "/dev/urandom",
			// where /etc/resolv.conf points to
			"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager",
			filepath.Dir(e.binary.path), filepath.Join(e.opts.CacheDir, "templates"), e.runDir + "/terraformrc",
		}, cli.mirrors...),
		initUse: []string{cli.initFile},
		initMod: cli.caches,
	}
	if i.abi == 0 {
		i.concerns = append(i.concerns, "templates can read this account's files: the kernel has no Landlock")
	}
	if os.Geteuid() == 0 {
		with, its := i, *cli
		err := e.chooseAccount(&with, &its)
		if err == nil {
			err = e.tryIsolation(ctx, with)
		}
		if err == nil {
			*cli = its
			return with, nil
		}
		i.concerns = append(i.concerns, "templates run as root: "+err.Error())
	}
	return i, nil
}

// tryIsolation runs Terraform once the way that jobs will run it.
func (e *Executor) tryIsolation(ctx context.Context, i isolation) error {
	command := filepath.Join(e.runDir, "try")
	p := policy{
		Exec: e.binary.path, PidFile: command + ".pid", Landlock: i.abi > 0, Write: i.write, Read: i.read,
		UID: i.uid, GID: i.gid, Groups: i.groups, Show: i.show,
	}
	if err := p.writeCommand(command, e.opts.Worker[0]); err != nil {
		return err
	}
	defer os.Remove(command)
	defer os.Remove(p.PidFile)
	if found, err := askVersion(ctx, command); err != nil {
		return fmt.Errorf("the account %s cannot run %s here: %w", i.account, e.binary.path, err)
	} else if found.version != e.binary.version {
		return fmt.Errorf("the account %s runs version %s", i.account, found.version)
	}
	return nil
}

// chooseAccount fills in the account that templates run as, or says why there is none.
func (e *Executor) chooseAccount(i *isolation, cli *cliConfig) error {
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return errors.New("there is no account nobody")
	}
	uid, uidErr := strconv.Atoi(nobody.Uid)
	gid, gidErr := strconv.Atoi(nobody.Gid)
	if uidErr != nil || gidErr != nil || uid == 0 {
		return errors.New("the account nobody has no usable number")
	}
	// The provider worker lives outside of the mount namespace, and jobs' folders are its way to Terraform.
	if obstacle, ok := reachable(e.runDir); !ok {
		return fmt.Errorf("the account nobody cannot reach %s, because of %s", e.runDir, obstacle)
	}
	if err := os.Chmod(filepath.Join(e.opts.CacheDir, "templates"), 0o755); err != nil {
		return fmt.Errorf("open template cache: %w", err)
	}
	needed := append([]string{e.binary.path, filepath.Join(e.opts.CacheDir, "templates"), e.opts.WorkspacesDir}, cli.mirrors...)
	for _, name := range needed {
		obstacle, ok := reachable(name)
		if real, err := filepath.EvalSymlinks(name); err == nil && !ok && obstacle == real {
			return fmt.Errorf("the account nobody may not use %s", name)
		}
		if !ok {
			i.show = append(i.show, name)
		}
	}
	if err := os.Chmod(e.opts.WorkspacesDir, 0o1777); err != nil {
		return fmt.Errorf("open %s: %w", e.opts.WorkspacesDir, err)
	}
	if info, err := os.Stat("/var/run/docker.sock"); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Gid != 0 {
			i.groups = []int{int(stat.Gid)}
		}
	}
	i.account, i.uid, i.gid = "nobody", uid, gid
	if cli.initFile == cli.jobFile {
		return nil
	}
	// The operator's holds credentials, and may be root's alone. Init reads a copy; the sandbox hides it from jobs.
	text, err := os.ReadFile(cli.initFile)
	if err != nil {
		return fmt.Errorf("read terraform configuration: %w", err)
	}
	cli.initFile = filepath.Join(e.runDir, "terraformrc.init")
	if err := errors.Join(removeFile(cli.initFile), os.WriteFile(cli.initFile, text, 0o600), os.Lchown(cli.initFile, uid, gid)); err != nil {
		return fmt.Errorf("copy terraform configuration: %w", err)
	}
	i.initUse = []string{cli.initFile}
	return nil
}

// own gives a folder to the account that templates run as.
func (i isolation) own(dir string) error {
	if i.uid == 0 {
		return nil
	}
	return os.Lchown(dir, i.uid, i.gid)
}

// cliConfig is Terraform's CLI configuration: the operator's is for init, which alone installs anything, and jobs get an
// empty one, because an operator's holds registry credentials.
type cliConfig struct {
	initFile string
	jobFile  string
	mirrors  []string // folders that providers are linked from
	caches   []string // folders that init may write
}

const emptyCLIConfig = "disable_checkpoint = true\n"

func writeCLIConfig(runDir string) (cliConfig, error) {
	c := cliConfig{jobFile: filepath.Join(runDir, "terraformrc")}
	if err := os.WriteFile(c.jobFile, []byte(emptyCLIConfig), 0o644); err != nil {
		return c, fmt.Errorf("write terraform configuration: %w", err)
	}
	c.initFile = c.jobFile
	theirs := os.Getenv("TF_CLI_CONFIG_FILE")
	if theirs == "" {
		if home, err := os.UserHomeDir(); err == nil {
			theirs = filepath.Join(home, ".terraformrc")
		}
	}
	text, err := os.ReadFile(theirs)
	if err != nil {
		return c, nil // as Terraform does, which only warns of a file that it cannot read
	}
	c.initFile = theirs
	file, diags := new(syntax.Parser).Config(theirs, text)
	if diags.HasErrors() {
		return c, nil // Terraform will say what is wrong with it, at the first init
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return c, nil
	}
	if dir := stringAttribute(body, "plugin_cache_dir"); dir != "" {
		c.caches = append(c.caches, os.ExpandEnv(dir))
		c.mirrors = append(c.mirrors, os.ExpandEnv(dir))
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

// stringAttribute is the value of a literal attribute, or "".
func stringAttribute(body *hclsyntax.Body, name string) string {
	attr, ok := body.Attributes[name]
	if !ok {
		return ""
	}
	return literal(attr.Expr)
}
