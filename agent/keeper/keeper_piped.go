//go:build windows || darwin

package keeper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/terminal"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/memory"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// ordinary is the highest exit status of programs that end in an orderly way. On Windows those of crashes are above
// (NTSTATUS values), elsewhere they are -1.
const ordinary = 255

// Run starts an agent, this program with the same arguments, restarts it after crashes and after the workspace stopped,
// and returns its exit status once it has exited by choice.
//
// The agent's standard input and output are pipes to this process: on the first it receives its token, and notices the
// end of the keeper; on the second it returns the token of the next agent.
func Run(opts Options) (code int, err error) {
	path, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	debug.SetGCPercent(20) // the keeper does little, so it need not keep memory for later
	os.Unsetenv("CODER_AGENT_TOKEN")
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	k := &keeper{log: opts.Logger, token: opts.Token, path: path, signals: signals}
	return k.run()
}

type keeper struct {
	log     *slog.Logger
	token   secret.Token
	path    string
	signals chan os.Signal

	returning bool // the workspace has stopped
}

func (k *keeper) run() (int, error) {
	pauses := backoff.Backoff{Min: minPause, Max: maxPause}
	for {
		began := time.Now()
		code, ending, err := k.once()
		if err != nil {
			return 0, err
		}
		switch {
		case code == RestartCode && !ending:
			k.log.Info("restarting agent")
			continue
		case code == StoppedCode && !ending:
			k.log.Info("workspace stopped, its next start may admit the agent again")
			k.returning = true
		case ending && (k.returning || code == StoppedCode):
			return 0, nil
		case ending || code != panicCode && 0 <= code && code <= ordinary:
			return code, nil
		default:
			k.log.Error("agent crashed, restarting", "reason", fmt.Sprintf("exit status %#x", uint32(code)))
		}
		if time.Since(began) > wellFor {
			pauses.Reset()
		}
		timer := time.NewTimer(pauses.Next())
		select {
		case <-timer.C:
		case <-k.signals:
			timer.Stop()
			if k.returning {
				return 0, nil
			}
			return 128 + int(syscall.SIGTERM), nil
		}
	}
}

// once runs the agent until it exits. ending is set if a signal asked it to.
func (k *keeper) once() (code int, ending bool, err error) {
	cmd := exec.Command(k.path, os.Args[1:]...)
	env := proc.NewEnv(os.Environ())
	env.Set(childEnv, "1")
	if k.returning {
		env.Set(returningEnv, "1")
	}
	cmd.Env, cmd.Stderr = env.List(), os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return 0, false, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return 0, false, err
	}
	if err := cmd.Start(); err != nil {
		return 0, false, fmt.Errorf("start agent: %w", err)
	}
	_, _ = io.WriteString(input, k.token.Reveal()+"\n") // fails only if the agent has ended, which its status shows
	memory.Free()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			k.token = secret.Token(lines.Text())
		}
		_ = cmd.Wait() // ProcessState has the status
	}()
	for {
		select {
		case <-done:
			return cmd.ProcessState.ExitCode(), ending, nil
		case <-k.signals:
			ending = true
			input.Close() // the agent takes this for the end of its keeper
		}
	}
}

// Child is the agent's side of the keeper. It implements agent.Terminals with shells of this process.
type Child struct {
	token  secret.Token
	output *os.File
	holder *terminal.Holder
	lost   chan struct{}
	close  sync.Once
}

// Attach receives the token from the keeper. The agent's process calls it once, early.
func Attach() (*Child, error) {
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("receive token: %w", err)
	}
	c := &Child{
		token: secret.Token(strings.TrimSuffix(line, "\n")), output: os.Stdout,
		holder: terminal.New(terminal.Options{}),
		lost:   make(chan struct{}),
	}
	go func() {
		_, _ = io.Copy(io.Discard, input) // the keeper sends nothing more
		c.close.Do(func() { close(c.lost) })
	}()
	return c, nil
}

// Token returns the agent's token.
func (c *Child) Token() secret.Token { return c.token }

// SetToken gives the keeper the token of the next agent. Call it before Close.
func (c *Child) SetToken(token secret.Token) error {
	if _, err := io.WriteString(c.output, token.Reveal()+"\n"); err != nil {
		return fmt.Errorf("pass token to keeper: %w", err)
	}
	return nil
}

// Lost is closed when the keeper is gone, or after Close.
func (c *Child) Lost() <-chan struct{} { return c.lost }

// Dial opens a connection to the terminals.
func (c *Child) Dial() (net.Conn, error) {
	select {
	case <-c.lost:
		return nil, errors.New("the workspace is stopping")
	default:
	}
	ours, theirs := net.Pipe()
	c.holder.Go(theirs)
	return ours, nil
}

// Close ends the terminals.
func (c *Child) Close() error {
	c.close.Do(func() { close(c.lost) })
	return c.holder.Close()
}
