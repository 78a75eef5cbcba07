package cli

import (
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

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

type configSSHOptions struct {
	file       string
	dryRun     bool
	yes        bool
	options    []string
	suffix     string
	prefix     string
	binary     string
	wait       string
	noWildcard bool
}

func (a *app) configSSHCmd() *cobra.Command {
	var o configSSHOptions
	cmd := &cobra.Command{
		Use:   "config-ssh",
		Short: "Let OpenSSH reach workspaces by name: ssh coder.dev",
		Long: `Write a section to OpenSSH's configuration that carries "ssh coder.dev" and "ssh dev.coder" through this program. Everything
outside of the section stays as it is; running the command again replaces the section.`,
		Example: `  coder config-ssh
  coder config-ssh --dry-run
  coder config-ssh -o ForwardAgent=yes -y`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.configSSH(cmd, &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "ssh-config-file", filepath.Join("~", ".ssh", "config"), "OpenSSH's configuration file")
	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "show what would change, and change nothing")
	f.StringArrayVarP(&o.options, "ssh-option", "o", nil, "further OpenSSH option Key=value for workspaces; may be repeated")
	f.StringVar(&o.suffix, "hostname-suffix", "", "suffix of workspaces' host names (default the server's)")
	f.StringVar(&o.prefix, "ssh-host-prefix", "", "prefix of workspaces' host names (default the server's)")
	f.StringVar(&o.binary, "coder-binary-path", "", "this program, as OpenSSH finds it (default where it runs from)")
	f.StringVar(&o.wait, "wait", "auto", "whether sessions wait for startup scripts: yes, no or auto")
	f.BoolVar(&o.noWildcard, "no-wildcard", false, "name each of your workspaces instead of a pattern")
	SetEnv(f.Lookup("ssh-config-file"), "CODER_SSH_CONFIG_FILE")
	SetEnv(f.Lookup("ssh-option"), "CODER_SSH_CONFIG_OPTS")
	yesFlag(cmd, &o.yes)
	return cmd
}

func (a *app) configSSH(cmd *cobra.Command, o *configSSHOptions) error {
	ctx := cmd.Context()
	if o.wait != "yes" && o.wait != "no" && o.wait != "auto" {
		return fault.New(fault.Invalid, "--wait is yes, no or auto, not %q", o.wait)
	}
	client, err := a.client(ctx)
	if err != nil {
		return err
	}
	section, err := a.sshSection(ctx, client, o)
	if err != nil {
		return err
	}
	path, err := realPath(o.file)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Invalid, "OpenSSH's configuration cannot be read: %w", err)
	}
	after, err := replaceSection(string(before), section)
	if err != nil {
		return Try(fault.New(fault.Invalid, "%s cannot be edited: %w", path, err), "removing the marked lines by hand")
	}
	if after == string(before) {
		fmt.Fprintf(a.streams().Err, "%s is up to date.\n", path)
		return nil
	}
	if o.dryRun {
		_, err := fmt.Fprint(a.streams().Out, sectionDiff(path, string(before), after))
		return err
	}
	if a.streams().InTTY && !o.yes {
		fmt.Fprint(a.streams().Err, sectionDiff(path, string(before), after))
	}
	if err := a.confirm(cmd, o.yes, "Write "+path+"?", true); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fault.New(fault.Invalid, "the folder of OpenSSH's configuration cannot be made: %w", err)
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := writeFile(path, []byte(after), mode); err != nil {
		return err
	}
	fmt.Fprintf(a.streams().Err, "%s has been written. Try: ssh %s\n", path, o.example())
	return nil
}

// example is a host name that works now.
func (o *configSSHOptions) example() string { return o.prefix + "WORKSPACE" }

// sshSection makes the section's lines, markers not included. It sets the options that the server decides.
func (a *app) sshSection(ctx context.Context, client *sdk.Client, o *configSSHOptions) (string, error) {
	server, err := client.SSHConfig(ctx)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return "", err
	}
	if o.prefix == "" {
		o.prefix = server.HostnamePrefix
	}
	if o.prefix == "" {
		o.prefix = "coder."
	}
	if o.suffix == "" {
		o.suffix = server.HostnameSuffix
	}
	o.suffix = strings.TrimPrefix(o.suffix, ".")
	var names []string
	if o.noWildcard {
		workspaces, err := client.AllWorkspaces(ctx, "owner:me")
		if err != nil {
			return "", err
		}
		for _, ws := range workspaces {
			names = append(names, ws.Name)
		}
		slices.Sort(names)
	}
	dir, err := a.config()
	if err != nil {
		return "", err
	}
	full, err := filepath.Abs(string(dir))
	if err != nil {
		return "", fmt.Errorf("find the configuration folder: %w", err)
	}
	known := filepath.Join(full, fileKnownHosts)
	proxy, err := a.proxyCommand(o, full, known)
	if err != nil {
		return "", err
	}
	options, err := sshOptionLines(sshDefaults(known), server.SSHConfigOptions, o.options)
	if err != nil {
		return "", err
	}
	return renderSection(o.prefix, o.suffix, names, o.noWildcard, options, proxy), nil
}

// renderSection makes the section of host blocks. With listed, names are named instead of a pattern.
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
		fmt.Fprintf(&b, "\tProxyCommand %s %s %s %%h\n", proxy, flag, value)
	}
	block(func(n string) string { return prefix + n }, "--ssh-host-prefix", prefix)
	if suffix != "" {
		b.WriteString("\n")
		block(func(n string) string { return n + "." + suffix }, "--hostname-suffix", suffix)
	}
	return b.String()
}

// sshDefaults are options of every workspace's block. The file of known hosts is kept by the ProxyCommand, so the check needs
// no person. AES-GCM comes first: OpenSSH prefers what is slower where the processor has instructions for AES. The list is
// written out because older releases cannot put one cipher before their defaults.
func sshDefaults(knownHosts string) []string {
	return []string{
		"ConnectTimeout 0", "StrictHostKeyChecking yes", "UserKnownHostsFile " + quoteConfig(knownHosts), "LogLevel ERROR",
		"Ciphers aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr,aes256-ctr",
	}
}

// quoteConfig quotes a path for OpenSSH's configuration.
func quoteConfig(path string) string {
	return `"` + strings.NewReplacer("%", "%%", `"`, `\"`).Replace(filepath.ToSlash(path)) + `"`
}

// sshOptionLines merges the defaults, the server's options and the person's: a later one replaces an earlier one of its name.
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
	for _, key := range slices.Sorted(maps.Keys(server)) {
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

// proxyCommand is this program with the flags that find the same session again.
func (a *app) proxyCommand(o *configSSHOptions, dir, knownHosts string) (string, error) {
	binary := o.binary
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			return "", fmt.Errorf("find this program (name it with --coder-binary-path): %w", err)
		}
	}
	words := []string{quoteProxy(binary), "--global-config", quoteProxy(dir)}
	for _, h := range a.headers {
		words = append(words, "--header", quoteProxy(h))
	}
	if a.headerCommand != "" {
		words = append(words, "--header-command", quoteProxy(a.headerCommand))
	}
	words = append(words, "ssh", "--stdio", "--known-hosts", quoteProxy(knownHosts))
	if o.wait != "auto" {
		words = append(words, "--wait="+o.wait)
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

// realPath expands ~ and follows a link, so that it is its target that is replaced.
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
