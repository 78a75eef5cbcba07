//go:build !darwin && !windows

package global

import (
	"errors"
	"runtime"
)

// systemKeyring refuses: servers and containers have no keyring, and desktops differ.
type systemKeyring struct{}

var errNoKeyring = errors.New("this program has none on " + runtime.GOOS)

func (systemKeyring) get(string) (string, error) { return "", errNoKeyring }
func (systemKeyring) set(string, string) error   { return errNoKeyring }
func (systemKeyring) remove(string) error        { return errNoKeyring }
