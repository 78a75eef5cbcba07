//go:build unix

package disk

import (
	"syscall"
)

// causes are the system's errors.
var causes = map[kind][]error{full: {syscall.ENOSPC}, overQuota: {syscall.EDQUOT}, readOnly: {syscall.EROFS}}
