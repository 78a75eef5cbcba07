//go:build unix

package agent

import (
	"errors"
	"syscall"
)

func isReadOnly(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC)
}
