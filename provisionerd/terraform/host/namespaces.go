package host

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// resolverDirs are the folders that /etc/resolv.conf may point to.
var resolverDirs = []string{"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"}

// deviceFiles are the devices of a sandbox, which Landlock lets it write to.
var deviceFiles = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts"}

// view is what one sandbox sees of the host.
type view struct {
	system      visible
	write, read []string // under their own names
	etc         *etcFolder
	temporary   uint64 // bytes that each temporary folder may hold; 0 means no bound
}

// mountPoints bounds the file system that holds mount points alone, in bytes.
const mountPoints = 4 << 20

// bwrap returns the command line of bubblewrap for a view: namespaces for processes, mounts, System V IPC and names, no
// capability except to change the account, and a root folder made of what the view names. The network is the host's.
func (i isolation) bwrap(v view, program string) []string {
	argv := []string{i.bubblewrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--as-pid-1", "--cap-drop", "ALL"}
	if i.accounts != nil {
		argv = append(argv, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
	} else {
		argv = append(argv, "--unshare-user")
	}
	add := func(words ...string) { argv = append(argv, words...) }
	add("--proc", "/proc", "--dev", "/dev")
	for _, dir := range temporaryDirs {
		add("--perms", "1777")
		if v.temporary > 0 {
			add("--size", strconv.FormatUint(v.temporary, 10))
		}
		add("--tmpfs", dir)
	}
	add("--perms", "0755", "--size", strconv.Itoa(mountPoints), "--tmpfs", "/run", "--symlink", "/run", "/var/run")
	made := map[string]bool{"/run": true}
	paths, links := v.system.paths, v.system.links
	if v.etc != nil {
		add("--ro-bind", v.etc.dir, configDir)
		paths = append(slices.DeleteFunc(slices.Clone(paths), inEtc), v.etc.mounts...)
		links = slices.DeleteFunc(slices.Clone(links), func(l link) bool { return inEtc(l.name) })
	}
	bind := func(how, from, to string) {
		if v.etc == nil || !inEtc(to) { // otherwise the folder has a mount point
			add(foldersTo(to, made)...)
		}
		add(how, from, to)
		made[to] = true
	}
	for _, name := range paths {
		bind("--ro-bind-try", name, name)
	}
	for _, link := range links {
		add(foldersTo(link.name, made)...)
		add("--symlink", link.target, link.name)
	}
	bind("--ro-bind", program, sandbox.InnerProgram)
	for _, name := range slices.Concat(resolverDirs, v.read) {
		bind("--ro-bind-try", name, name)
	}
	for _, name := range v.write {
		bind("--bind-try", name, name)
	}
	add("--remount-ro", "/") // the root folder alone, not what is mounted below it
	return argv
}

// foldersTo returns arguments that make the folders above name, which bubblewrap on its own would close to other
// accounts. Made are the folders that exist already.
func foldersTo(name string, made map[string]bool) []string {
	var argv []string
	for dir := filepath.Dir(name); dir != "/" && !made[dir]; dir = filepath.Dir(dir) {
		made[dir] = true
		argv = append([]string{"--perms", "0755", "--dir", dir}, argv...)
	}
	return argv
}

// findBubblewrap returns the path of bwrap.
func findBubblewrap() (string, error) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return "", errors.New("bubblewrap is not installed")
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", fmt.Errorf("find bubblewrap: %w", err)
	}
	return path, nil
}

// etcFolder is what one sandbox with namespaces sees as /etc: a folder of the daemon's with copies of the small files,
// links, and mount points for the rest. Bubblewrap takes longer for each mount than for the one before, and forty files
// are too many. The copies of live names follow the host's.
type etcFolder struct {
	dir    string
	mounts []string // the files and folders of the host to show in it
}
