package inside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	sshagent "golang.org/x/crypto/ssh/agent"

	"github.com/codermesh/codermesh/v2/agent"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/scratch"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

func gitSignCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "gitsign -- SSH-KEYGEN-ARGUMENTS",
		Short: "Sign Git commits with your Git key inside a workspace",
		Long: `Sign Git commits with your Git key. Git calls this command in a workspace as gpg.ssh.program when commits are signed with SSH keys.
The key stays on the server. If you configure another key or another gpg.ssh.program, that one signs.`,
		Example:            `  git config --global gpg.format ssh && git config --global commit.gpgsign true`,
		Hidden:             true,
		DisableFlagParsing: true, // all of them belong to ssh-keygen
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "--" {
				args = args[1:]
			}
			return runGitSign(cmd.Context(), g, args)
		},
	}
}

// SignArgs returns the program's arguments if Git has called it instead of ssh-keygen.
func SignArgs(args []string) ([]string, bool) {
	if len(args) < 2 || args[0] != "-Y" || os.Getenv(agent.GitAgentEnv) == "" {
		return nil, false
	}
	return append([]string{"gitsign", "--"}, args...), true
}

// runGitSign runs ssh-keygen, or the user's own signing program, to its end. If the key to sign with is the owner's key
// for git, or the file holds no key at all, the owner's key signs: modules that fetch a key from the server do not get
// one, because it never leaves the server, and leave a file without a key behind.
func runGitSign(ctx context.Context, g *global.Flags, args []string) error {
	program, env := "ssh-keygen", os.Environ()
	if own := ownSignProgram(ctx); own != "" {
		program = own
	} else if i := slices.Index(args, "-f"); i >= 0 && i+1 < len(args) && len(args) > 1 && args[1] == "sign" {
		socket := os.Getenv(agent.GitAgentEnv)
		public, err := gitPublicKey(ctx, socket)
		if err != nil && !isKey(args[i+1]) {
			return exit.Try(fault.New(fault.Unavailable, "cannot fetch your Git key from the server: %w", err),
				"git commit --no-gpg-sign")
		}
		if err == nil && signsForOwner(args[i+1], public) {
			dir, err := scratch.Make("coder-sign-")
			if err != nil {
				return err
			}
			defer dir.Close()
			path := filepath.Join(dir.Path(), "key.pub")
			if err := os.WriteFile(path, ssh.MarshalAuthorizedKey(public), 0o600); err != nil {
				return fmt.Errorf("write public key: %w", err)
			}
			args = slices.Clone(args)
			args[i+1], env = path, append(env, "SSH_AUTH_SOCK="+socket)
		}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return fault.New(fault.Invalid, "signing commits needs %s, which this workspace does not have: %w", program,
			err)
	}
	run := exec.CommandContext(ctx, path, args...)
	s := g.Streams()
	run.Env, run.Stdin, run.Stdout, run.Stderr = env, s.In, tty.Raw(s.Out), tty.Raw(s.Err)
	err = run.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return &exit.Error{Code: max(ended.ExitCode(), 1)}
	}
	return err
}

// ownSignProgram returns the gpg.ssh.program of the user's own configuration, or "" if it is not set.
func ownSignProgram(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, "git", "config", "--get", "gpg.ssh.program")
	cmd.Env = slices.DeleteFunc(os.Environ(),
		func(kv string) bool { return strings.HasPrefix(kv, "GIT_CONFIG_COUNT=") })
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// gitPublicKey asks the agent for the owner's public key for git.
func gitPublicKey(ctx context.Context, socket string) (ssh.PublicKey, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	keys, err := sshagent.NewClient(conn).List()
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("the agent has no key")
	}
	return ssh.ParsePublicKey(keys[0].Blob)
}

// signsForOwner reports whether a file to sign with holds the owner's public key, or no key at all. It leaves a file
// that cannot be read to ssh-keygen.
func signsForOwner(path string, owner ssh.PublicKey) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	if public, _, _, _, err := ssh.ParseAuthorizedKey(data); err == nil {
		return bytes.Equal(public.Marshal(), owner.Marshal())
	}
	return !isKey(path)
}

// isKey reports whether a file holds a public or private key.
func isKey(path string) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return true
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey(data); err == nil {
		return true
	}
	return bytes.Contains(data, []byte("PRIVATE KEY-----"))
}
