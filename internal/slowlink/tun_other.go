//go:build !linux

package slowlink

import (
	"errors"
	"os"
)

func openTUN(string, string) (*os.File, error) {
	return nil, errors.New("there are no network namespaces on this system")
}
