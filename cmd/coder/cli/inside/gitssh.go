package inside

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

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

func gitSSHCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gitssh -- SSH-ARGUMENTS",
		Short: "Run ssh with your Git key inside a workspace",
		Long: `Run ssh with your Git key. Git calls this command in a workspace through GIT_SSH_COMMAND. The key stays on the server, which signs
with it; keys of an SSH agent that you forwarded with -A are offered after it. "coder publickey" prints the key to register at your Git host.`,
		Example:            `  GIT_SSH_COMMAND="coder gitssh" git clone git@git.example.com:team/project.git`,
		DisableFlagParsing: true, // all of them belong to ssh
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			if len(args) > 0 && args[0] == "--" {
				args = args[1:]
			}
			return runGitSSH(cmd.Context(), g, args)
		},
	}
	return cmd
}

// runGitSSH runs ssh to its end and passes its exit status through.
func runGitSSH(ctx context.Context, g *global.Flags, args []string) error {
	socket := os.Getenv(agent.GitAgentEnv)
	if socket == "" {
		return exit.Try(fault.New(fault.Invalid, "there is no Git key here: $%s is not set", agent.GitAgentEnv),
			"Run git inside a workspace: coder ssh WORKSPACE")
	}
	program, err := exec.LookPath("ssh")
	if err != nil {
		return fault.New(fault.Invalid, "git over SSH needs OpenSSH's client, which this workspace does not have: %w",
			err)
	}
	if forwarded := os.Getenv("SSH_AUTH_SOCK"); forwarded != "" && forwarded != socket {
		both, err := joinAgents(socket, forwarded)
		if err != nil {
			return fmt.Errorf("join SSH agents: %w", err)
		}
		defer both.Close()
		socket = both.path
	}
	run := exec.CommandContext(ctx, program, append([]string{"-o", "IdentityAgent=" + socket}, args...)...)
	s := g.Streams()
	run.Stdin, run.Stdout, run.Stderr = s.In, tty.Raw(s.Out), tty.Raw(s.Err)
	err = run.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		if ended.ExitCode() == exit.SSH {
			explainGitKey(ctx, g, socket)
		}
		return &exit.Error{Code: max(ended.ExitCode(), 1)}
	}
	return err
}

// explainGitKey prints the key that the Git host may be missing.
func explainGitKey(ctx context.Context, g *global.Flags, socket string) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err == nil {
		defer conn.Close()
		var keys []*sshagent.Key
		if keys, err = sshagent.NewClient(conn).List(); err == nil && len(keys) > 0 {
			fmt.Fprintf(g.Streams().Err, "If the Git host refused the key, register this one there:\n%s\n", keys[0])
			return
		}
	}
	fmt.Fprintf(g.Streams().Err, "Cannot fetch your Git key from the server.\n")
}

// joinedAgents is an SSH agent on a private socket that offers the keys of several others.
type joinedAgents struct {
	path     string
	dir      *scratch.Folder
	listener net.Listener
	wg       sync.WaitGroup
}

func joinAgents(sockets ...string) (*joinedAgents, error) {
	dir, err := scratch.Make("coder-git-")
	if err != nil {
		return nil, err
	}
	j := &joinedAgents{dir: dir, path: filepath.Join(dir.Path(), "agent.sock")}
	if j.listener, err = net.Listen("unix", j.path); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	j.wg.Go(func() {
		for {
			conn, err := j.listener.Accept()
			if err != nil {
				return // closed
			}
			// By the time of Close ssh has exited and closed its connections.
			j.wg.Go(func() {
				defer conn.Close()
				var rings keyrings
				for _, socket := range sockets {
					// An agent that does not answer offers no keys.
					if to, err := net.Dial("unix", socket); err == nil {
						defer to.Close()
						rings = append(rings, sshagent.NewClient(to))
					}
				}
				_ = sshagent.ServeAgent(rings, conn) // ends with the connection
			})
		}
	})
	return j, nil
}

// Close ends the agent.
func (j *joinedAgents) Close() error {
	err := j.listener.Close()
	j.wg.Wait()
	return errors.Join(err, j.dir.Close())
}

// keyrings is a list of SSH agents that offers all their keys, in order. The keys cannot be changed.
type keyrings []sshagent.ExtendedAgent

func (k keyrings) List() (keys []*sshagent.Key, err error) {
	for _, ring := range k {
		have, ringErr := ring.List()
		if err = errors.Join(err, ringErr); ringErr == nil {
			keys = append(keys, have...)
		}
	}
	if len(keys) > 0 {
		err = nil // some keys are better than none
	}
	return keys, err
}

func (k keyrings) Sign(key ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	return k.SignWithFlags(key, data, 0)
}

func (k keyrings) SignWithFlags(
	key ssh.PublicKey, data []byte, flags sshagent.SignatureFlags,
) (signature *ssh.Signature, err error) {
	err = errors.New("no such key")
	for _, ring := range k {
		if signature, err = ring.SignWithFlags(key, data, flags); err == nil {
			return signature, nil
		}
	}
	return nil, err
}

func (k keyrings) Extension(string, []byte) ([]byte, error) {
	return nil, sshagent.ErrExtensionUnsupported
}

var errReadOnly = errors.New("these keys cannot be changed here")

func (k keyrings) Signers() ([]ssh.Signer, error) { return nil, errReadOnly }
func (k keyrings) Add(sshagent.AddedKey) error    { return errReadOnly }
func (k keyrings) Remove(ssh.PublicKey) error     { return errReadOnly }
func (k keyrings) RemoveAll() error               { return errReadOnly }
func (k keyrings) Lock([]byte) error              { return errReadOnly }
func (k keyrings) Unlock([]byte) error            { return errReadOnly }
