//go:build linux || darwin

package keeper

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const tokenEnv = "CODER_AGENT_TOKEN_FD" // set for this program after Scrub: the descriptor of its token

// Scrub executes this program again, in the same process, if its environment holds the agent's token: a process's
// initial environment is readable as long as the process lives. The program then gets the token from Token.
func Scrub(token secret.Token) error {
	if os.Getenv("CODER_AGENT_TOKEN") == "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	pipe := make([]int, 2)
	if err := syscall.Pipe(pipe); err != nil { // the reading end outlives exec
		return fmt.Errorf("pass token on: %w", err)
	}
	if _, err := unix.Write(pipe[1], []byte(token.Reveal())); err != nil {
		return fmt.Errorf("pass token on: %w", err)
	}
	if err := unix.Close(pipe[1]); err != nil {
		return fmt.Errorf("pass token on: %w", err)
	}
	env := proc.NewEnv(os.Environ())
	env.Set("CODER_AGENT_TOKEN", "")
	env.Set(tokenEnv, strconv.Itoa(pipe[0]))
	if err := syscall.Exec(self, os.Args, env.List()); err != nil {
		return fmt.Errorf("start without token in the environment: %w", err)
	}
	return nil
}

// Token returns the token that Scrub or a keeper has passed on, or "".
func Token() (secret.Token, error) {
	fd, err := strconv.Atoi(os.Getenv(tokenEnv))
	if err != nil {
		return "", nil
	}
	os.Unsetenv(tokenEnv)
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "token")
	defer file.Close()
	buf := make([]byte, 4096)
	n, err := file.Read(buf)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return secret.Token(buf[:n]), nil
}
