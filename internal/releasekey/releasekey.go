// Package releasekey holds the public key of the project's releases, if the source that this program is built from has
// one. The package verifies nothing: see internal/bootstrap, and docs/decisions, "Signed releases".
package releasekey

import (
	"embed"
	"errors"
	"io/fs"
)

// keys has the file release.pub once releases are signed.
//
//go:embed all:keys
var keys embed.FS

// PEM returns the public key, or "" in a build whose source has none. Such a build cannot tell whether a program
// belongs to a release.
func PEM() string {
	key, err := keys.ReadFile("keys/release.pub")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		panic(err) // it is in memory
	}
	return string(key)
}
