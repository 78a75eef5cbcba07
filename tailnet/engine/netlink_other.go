//go:build !linux

package engine

import (
	"errors"
	"io"
)

// watchNetlink returns errors.ErrUnsupported: package netmon alone watches the network.
func watchNetlink() (io.ReadCloser, error) { return nil, errors.ErrUnsupported }
