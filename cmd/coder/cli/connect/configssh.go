package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/session"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

type configSSHOptions struct {
	file                   string
	dryRun                 bool
	yes                    bool
	options                []string
	suffix                 string
	prefix                 string
	binary                 string
	wait                   string
	noWildcard             bool
	noProxy                bool
	noAutostart, unixPaths bool
	previous               bool
	gateway                bool
	authority              authority // set by sshSection
	first                  string    // the first host of --gateway, set by sshSection
}

// recordedFlags are the flags that the section records for --use-previous-options.
var recordedFlags = []string{
	"ssh-option", "hostname-suffix", "ssh-host-prefix", "coder-binary-path", "wait", "no-wildcard", "skip-proxy-command", "disable-autostart",
	"force-unix-filepaths", "gateway",
}

func configSSHCmd(g *global.Flags) *cobra.Command {
	var opts configSSHOptions
	cmd := &cobra.Command{
		Use:   "config-ssh",
		Short: "Configure OpenSSH to reach workspaces by name",
		Long: `Write a section to OpenSSH's configuration so that "ssh coder.dev" and "ssh dev.coder" connect through this program. The rest of the
file is left alone; running the command again replaces the section.

With --gateway, the section lists your workspaces and those that are shared with you, and connects through the server's SSH gateway. It does not need
this program: copy it, and the file coder_gateway_hosts beside it, to any machine. Add your key with "coder ssh-key add" first.`,
		Example: `  coder config-ssh
  coder config-ssh --dry-run
  coder config-ssh -o ForwardAgent=yes -y
  coder config-ssh --gateway -o IdentityFile=~/.ssh/id_ed25519
  coder config-ssh --use-previous-options -y`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runConfigSSH(g, cmd, &opts) },
	}
	f := cmd.Flags()
	f.StringVar(&opts.file, "ssh-config-file", filepath.Join("~", ".ssh", "config"), "OpenSSH's configuration file")
	f.BoolVarP(&opts.dryRun, "dry-run", "n", false, "show the changes without making them")
	f.StringArrayVarP(&opts.options, "ssh-option", "o", nil,
		"additional OpenSSH option Key=value for workspaces; may be repeated")
	f.StringVar(&opts.suffix, "hostname-suffix", "", "suffix of workspaces' host names (default the server's)")
	f.StringVar(&opts.prefix, "ssh-host-prefix", "", "prefix of workspaces' host names (default the server's)")
	f.StringVar(&opts.binary, "coder-binary-path", "",
		"path of this program in the configuration (default the path it runs from)")
	f.StringVar(&opts.wait, "wait", "auto", "wait for startup scripts in sessions: yes, no or auto")
	f.BoolVar(&opts.noWildcard, "no-wildcard", false, "list each of your workspaces instead of using a pattern")
	f.BoolVar(&opts.noAutostart, "disable-autostart", false, "do not start a stopped workspace when ssh connects to it")
	f.BoolVar(&opts.unixPaths, "force-unix-filepaths", false,
		"write paths with slashes on Windows, for the ssh of Git and Cygwin")
	f.BoolVar(&opts.noProxy, "skip-proxy-command", false,
		"leave ProxyCommand out, for a configuration that sets its own")
	f.BoolVar(&opts.gateway, "gateway", false,
		"list workspaces with the address of the server's SSH gateway, for machines without this program")
	f.BoolVar(&opts.previous, "use-previous-options", false,
		"use the options of the section in the file, except those given now")
	flags.SetEnv(f.Lookup("use-previous-options"), "CODER_SSH_USE_PREVIOUS_OPTIONS")
	flags.SetEnv(f.Lookup("ssh-config-file"), "CODER_SSH_CONFIG_FILE")
	flags.SetEnv(f.Lookup("ssh-option"), "CODER_SSH_CONFIG_OPTS")
	flags.Yes(cmd, &opts.yes)
	return cmd
}

func runConfigSSH(g *global.Flags, cmd *cobra.Command, opts *configSSHOptions) error {
	ctx := cmd.Context()
	path, err := realPath(opts.file)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Invalid, "OpenSSH's configuration cannot be read: %w", err)
	}
	if opts.previous {
		if err := restoreFlags(cmd.Flags(), string(before)); err != nil {
			return exit.Try(fault.New(fault.Invalid, "the options in %s cannot be used: %w", path, err),
				"%s without --use-previous-options", cmd.CommandPath())
		}
	}
	if opts.wait != "yes" && opts.wait != "no" && opts.wait != "auto" {
		return fault.New(fault.Invalid, "--wait must be yes, no or auto, not %q", opts.wait)
	}
	if err := opts.checkGateway(cmd.Flags()); err != nil {
		return err
	}
	record, err := recordFlags(cmd.Flags())
	if err != nil {
		return err
	}
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	section, err := sshSection(ctx, g, client, opts, path)
	if err != nil {
		return err
	}
	after, err := replaceSection(string(before), record+section)
	if err != nil {
		return exit.Try(fault.New(fault.Invalid, "%s cannot be edited: %w", path, err),
			"Remove the marked lines by hand.")
	}
	if !opts.dryRun {
		if err := opts.authority.write(); err != nil {
			return err
		}
	}
	if after == string(before) {
		fmt.Fprintf(g.Streams().Err, "%s is up to date.\n", path)
		return nil
	}
	if opts.dryRun {
		_, err := fmt.Fprint(g.Streams().Out, sectionDiff(path, string(before), after))
		return err
	}
	if g.Streams().InTTY && !opts.yes {
		fmt.Fprint(g.Streams().Err, sectionDiff(path, string(before), after))
	}
	if err := g.Confirm(cmd, opts.yes, "Write "+path+"?", true); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fault.New(fault.Invalid, "the folder of OpenSSH's configuration cannot be made: %w", err)
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := config.WriteFile(path, []byte(after), mode); err != nil {
		return err
	}
	if opts.gateway {
		fmt.Fprintf(g.Streams().Err, "Wrote %s. Run this command again when you have other workspaces. Connect with: ssh %s\n", path, shell.Word(opts.example()))
		return nil
	}
	if opts.noProxy {
		fmt.Fprintf(g.Streams().Err, "Wrote %s without ProxyCommand.\n", path)
		return nil
	}
	fmt.Fprintf(g.Streams().Err, "Wrote %s. Connect with: ssh %s\n", path, shell.Word(opts.example()))
	return nil
}

// example returns a host name that works now.
func (opts *configSSHOptions) example() string { return cmp.Or(opts.first, opts.prefix+"WORKSPACE") }

// sshSection returns the section's lines for a file, without markers. It sets the options that the server decides.
func sshSection(
	ctx context.Context, g *global.Flags, client *sdk.Client, opts *configSSHOptions, file string,
) (string, error) {
	server, err := client.SSHConfig(ctx)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return "", err
	}
	if err := checkServer(server, opts); err != nil {
		return "", err
	}
	if opts.prefix == "" {
		opts.prefix = server.HostnamePrefix
	}
	if opts.prefix == "" {
		opts.prefix = "coder."
	}
	if opts.suffix == "" {
		opts.suffix = server.HostnameSuffix
	}
	opts.suffix = strings.TrimPrefix(opts.suffix, ".")
	if opts.gateway {
		return gatewaySection(ctx, client, opts, file, server.SSHConfigOptions)
	}
	var names []string
	if opts.noWildcard {
		workspaces, err := client.AllWorkspaces(ctx, "owner:me", "")
		if err != nil {
			return "", err
		}
		for _, ws := range workspaces {
			names = append(names, ws.Name)
		}
		slices.Sort(names)
		if err := checkNames(names); err != nil {
			return "", err
		}
	}
	dir, err := g.Config()
	if err != nil {
		return "", err
	}
	full, err := filepath.Abs(string(dir))
	if err != nil {
		return "", fmt.Errorf("find the configuration folder: %w", err)
	}
	known := filepath.Join(full, session.FileKnownHosts)
	var proxy string
	if !opts.noProxy {
		if proxy, err = proxyCommand(g, opts, full, known); err != nil {
			return "", err
		}
	}
	ca, err := hostAuthority(ctx, client, workspaceHosts)
	if err != nil {
		return "", err
	}
	opts.authority = authority{filepath.Join(full, fileHostCA), ca}
	options, err := sshOptionLines(sshDefaults(known, opts.authority), server.SSHConfigOptions, opts.options)
	if err != nil {
		return "", err
	}
	return renderSection(opts.prefix, opts.suffix, names, opts.noWildcard, options, proxy), nil
}

// renderSection returns the section of host blocks. With listed, it lists names instead of using a pattern. An empty
// proxy leaves ProxyCommand out.
func renderSection(prefix, suffix string, names []string, listed bool, options []string, proxy string) string {
	var b strings.Builder
	block := func(host func(string) string, flag, value string) {
		hosts := []string{"*"}
		if listed {
			hosts = names
		}
		if len(hosts) == 0 {
			return
		}
		b.WriteString("Host")
		for _, name := range hosts {
			b.WriteString(" " + host(name))
		}
		b.WriteString("\n")
		for _, line := range options {
			b.WriteString("\t" + line + "\n")
		}
		if proxy == "" {
			return
		}
		fmt.Fprintf(&b, "\tProxyCommand %s %s %s %%h\n", proxy, flag, value)
	}
	block(func(n string) string { return prefix + n }, "--ssh-host-prefix", prefix)
	if suffix != "" {
		b.WriteString("\n")
		block(func(n string) string { return n + "." + suffix }, "--hostname-suffix", suffix)
	}
	return b.String()
}

// ciphers puts AES-GCM first: OpenSSH prefers slower ciphers if the processor has instructions for AES. The list is
// written out because older releases cannot put one cipher before their defaults.
const ciphers = "Ciphers aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr,aes256-ctr"

// sshDefaults returns the options of every workspace's block. The ProxyCommand maintains the file of known hosts, so
// the check needs no user. Its lines count for a jump through the SSH gateway, too, for which the file of the authority
// has the server's.
func sshDefaults(knownHosts string, ca authority) []string {
	known := "UserKnownHostsFile " + quoteConfig(knownHosts)
	if ca.text != "" {
		known += " " + quoteConfig(ca.path)
	}
	return []string{"ConnectTimeout 0", "StrictHostKeyChecking yes", known, "LogLevel ERROR", ciphers}
}

// quoteConfig quotes a path for OpenSSH's configuration.
func quoteConfig(path string) string {
	return `"` + strings.NewReplacer("%", "%%", `"`, `\"`).Replace(filepath.ToSlash(path)) + `"`
}

// sshOptionLines merges the defaults, the server's and the user's options. A later one replaces an earlier one of the
// same name.
func sshOptionLines(defaults []string, server map[string]string, own []string) ([]string, error) {
	type option struct{ key, value string }
	var all []option
	add := func(key, value string) {
		i := slices.IndexFunc(all, func(o option) bool { return strings.EqualFold(o.key, key) })
		if i >= 0 {
			all[i] = option{key, value}
			return
		}
		all = append(all, option{key, value})
	}
	for _, line := range defaults {
		key, value, _ := strings.Cut(line, " ")
		add(key, value)
	}
	for _, key := range slices.Sorted(maps.Keys(server)) { // checkServer has allowed them
		add(key, server[key])
	}
	for _, pair := range own {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			key, value, ok = strings.Cut(pair, " ")
		}
		if key, value = strings.TrimSpace(key), strings.TrimSpace(value); !ok || key == "" || value == "" {
			return nil, fault.New(fault.Invalid, "--ssh-option %q is not Key=value", pair)
		}
		add(key, value)
	}
	var lines []string
	for _, o := range all {
		if strings.ContainsAny(o.key+o.value, "\r\n") {
			return nil, fault.New(fault.Invalid, "the SSH option %q spans lines", o.key)
		}
		lines = append(lines, o.key+" "+o.value)
	}
	return lines, nil
}

// proxyCommand returns this program's command line with the flags that select the same session.
func proxyCommand(g *global.Flags, opts *configSSHOptions, dir, knownHosts string) (string, error) {
	binary := opts.binary
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			return "", fmt.Errorf("find this program (name it with --coder-binary-path): %w", err)
		}
	}
	if opts.unixPaths {
		binary, dir, knownHosts = filepath.ToSlash(binary), filepath.ToSlash(dir), filepath.ToSlash(knownHosts)
	}
	words := []string{quoteProxy(binary), "--global-config", quoteProxy(dir)}
	for _, h := range g.Headers {
		words = append(words, "--header", quoteProxy(h))
	}
	if g.HeaderCommand != "" {
		words = append(words, "--header-command", quoteProxy(g.HeaderCommand))
	}
	words = append(words, "ssh", "--stdio", "--known-hosts", quoteProxy(knownHosts))
	if opts.wait != "auto" {
		words = append(words, "--wait="+opts.wait)
	}
	if opts.noAutostart {
		words = append(words, "--disable-autostart")
	}
	return strings.Join(words, " "), nil
}

// quoteProxy quotes a word for ProxyCommand, which a shell reads after OpenSSH has replaced its % sequences.
func quoteProxy(word string) string {
	word = strings.ReplaceAll(word, "%", "%%")
	if runtime.GOOS != "windows" {
		word = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(word)
	}
	return `"` + word + `"`
}

// realPath expands ~ and follows links, so that a link's target is replaced and not the link.
func realPath(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the home folder: %w", err)
		}
		path = filepath.Join(home, rest)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", path, err)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target, nil
	}
	return path, nil
}
