package connect

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

type vscodeSSHOptions struct {
	urlFile, tokenFile string
	ssh                sshOptions
}

// vscodeSSHCmd is the ProxyCommand of earlier releases of the plugin of VS Code.
func vscodeSSHCmd(g *global.Flags) *cobra.Command {
	opts := vscodeSSHOptions{ssh: sshOptions{stdio: true, usageApp: "vscode"}}
	cmd := &cobra.Command{
		Use:     "vscodessh HOST",
		Short:   "Serve SSH for earlier releases of the VS Code extension",
		Example: `  coder vscodessh --url-file url --session-token-file session coder-vscode--ada--dev`,
		Hidden:  true,
		Args:    flags.Argument("host"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := opts.prepare(g, args[0])
			if err != nil {
				return &exit.Error{Code: exit.SSH, Err: err}
			}
			return endSSH(cmd.Context(), runSSH(cmd.Context(), g, []string{name}, &opts.ssh))
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.urlFile, "url-file", "", "file with the server's URL")
	f.StringVar(&opts.tokenFile, "session-token-file", "", "file with the session token")
	f.StringVar(&opts.ssh.infoDir, "network-info-dir", "", "folder for a JSON file about the connection")
	f.DurationVar(&opts.ssh.infoEvery, "network-info-interval", 5*time.Second,
		"interval between two writes of that file")
	f.StringVarP(&opts.ssh.logDir, "log-dir", "l", "", "folder to write a log file to")
	f.StringVar(&opts.ssh.wait, "wait", "auto", "wait for the startup scripts: yes, no, or auto to follow the template")
	f.BoolVar(&opts.ssh.noAutostart, "disable-autostart", false, "do not start a stopped workspace")
	return cmd
}

// prepare reads the files, and returns the workspace that the host name means:
// coder-vscode[.server]--owner--workspace[--agent].
func (opts *vscodeSSHOptions) prepare(g *global.Flags, host string) (string, error) {
	for flag, from := range map[string]struct {
		file string
		into *string
	}{"url-file": {opts.urlFile, &g.URL}, "session-token-file": {opts.tokenFile, &g.Token}} {
		if from.file == "" {
			continue
		}
		data, err := os.ReadFile(from.file)
		if err != nil {
			return "", fault.New(fault.Invalid, "cannot read the file of --%s: %w", flag, err)
		}
		*from.into = strings.TrimSpace(string(data))
	}
	_, name, ok := strings.Cut(host, "--")
	if !ok || !strings.HasPrefix(host, "coder-vscode") || !strings.Contains(name, "--") {
		return "", fault.New(fault.Invalid, "the host %q does not have the form coder-vscode--OWNER--WORKSPACE", host)
	}
	return name, nil
}
