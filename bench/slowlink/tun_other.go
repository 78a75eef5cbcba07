//go:build !linux

package slowlink

import (
	"errors"
	"os"
)

var errUnsupported = errors.New("there are no network namespaces on this system")

// In is not supported.
func In(string, func() error) error { return errUnsupported }

func openTUN(string, string) (*os.File, error) { return nil, errUnsupported }
