//go:build !linux

package terminal

import (
	"errors"
	"net"
	"time"

	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

// terminal exists on Linux only: open fails.
type terminal struct{}

type viewer struct{}

func open(*Holder, Start) (*terminal, error) {
	return nil, errors.New("terminals need Linux, where workspaces run")
}
func (t *terminal) run()                             {}
func (t *terminal) end(string)                       {}
func (t *terminal) ended() bool                      { return false }
func (t *terminal) left() (time.Time, bool)          { return time.Time{}, false }
func (t *terminal) attach(net.Conn) (*viewer, error) { return nil, errClosed }
func (t *terminal) resize(ptywire.Size)              {}
func (t *terminal) serve(*viewer) error              { return errClosed }
