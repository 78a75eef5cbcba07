//go:build !linux

package keeper

import (
	"errors"
	"log/slog"
	"net"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Exit statuses by which an agent asks to be started again.
const (
	RestartCode = 75
	StoppedCode = 76
)

var errLinux = errors.New("the workspace agent runs on Linux")

// Options configures a keeper.
type Options struct {
	Logger *slog.Logger
	Token  secret.Token
}

// Child exists on Linux only.
type Child struct{}

// IsChild returns false, because keepers exist on Linux only.
func IsChild() bool { return false }

// Returning returns false, because keepers exist on Linux only.
func Returning() bool { return false }

// Scrub needs Linux.
func Scrub(secret.Token) error { return errLinux }

// Token needs Linux.
func Token() (secret.Token, error) { return "", nil }

// Run needs Linux.
func Run(Options) (int, error) { return 0, errLinux }

// Attach needs Linux.
func Attach() (*Child, error) { return nil, errLinux }

// Token returns the agent's token.
func (c *Child) Token() secret.Token { return "" }

// SetToken needs Linux.
func (c *Child) SetToken(secret.Token) error { return errLinux }

// Lost is closed when the keeper is gone.
func (c *Child) Lost() <-chan struct{} { return nil }

// Dial connects to the keeper's terminals.
func (c *Child) Dial() (net.Conn, error) { return nil, errLinux }

// Close disconnects from the keeper.
func (c *Child) Close() error { return nil }
