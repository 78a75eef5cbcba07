package secret

import "io/fs"

// isOwn returns false: Windows has no file modes.
func isOwn(fs.FileInfo) bool { return false }
