package proc

import (
	"os"
	"path/filepath"
)

// User is the account that the agent and everything in its workspace run as.
type User struct {
	Name  string
	UID   int
	GID   int
	Home  string
	Shell string
}

// Directory resolves the folder in which sessions start: empty and ~ mean home, variables of env are expanded, and a
// relative path is below home. The folder need not exist.
func (u User) Directory(dir string, env *Env) string {
	dir = env.Expand(dir)
	switch {
	case dir == "" || dir == "~":
		return u.Home
	case len(dir) > 1 && dir[0] == '~' && os.IsPathSeparator(dir[1]):
		return filepath.Join(u.Home, dir[2:])
	case !filepath.IsAbs(dir):
		return filepath.Join(u.Home, dir)
	}
	return filepath.Clean(dir)
}

// Existing returns a folder, or if it does not exist the home folder, or else the root.
func (u User) Existing(dir string) string {
	for _, at := range []string{dir, u.Home} {
		if isDir(at) {
			return at
		}
	}
	return filepath.VolumeName(u.Home) + string(filepath.Separator)
}

func existingDir(path string) string {
	if isDir(path) {
		return path
	}
	return ""
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return path != "" && err == nil && info.IsDir()
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
