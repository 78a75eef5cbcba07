//go:build !linux && !windows && !darwin

package keeper

import (
	"errors"
	"net"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

var errSystem = errors.New("the workspace agent runs on Linux, macOS and Windows")

// Child exists where agents run only.
type Child struct{}

// Scrub fails here, as all of the functions below do.
func Scrub(secret.Token) error { return errSystem }

// Token returns "".
func Token() (secret.Token, error) { return "", nil }

// Run fails.
func Run(Options) (int, error) { return 0, errSystem }

// Attach fails.
func Attach() (*Child, error) { return nil, errSystem }

// Token returns the agent's token.
func (c *Child) Token() secret.Token { return "" }

// SetToken fails.
func (c *Child) SetToken(secret.Token) error { return errSystem }

// Lost is closed when the keeper is gone.
func (c *Child) Lost() <-chan struct{} { return nil }

// Dial fails.
func (c *Child) Dial() (net.Conn, error) { return nil, errSystem }

// Close does nothing.
func (c *Child) Close() error { return nil }
