package terraform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// makeReachable lets an account that owns nothing reach the given files and folders, for this process and what it becomes and
// starts: in a mount namespace of its own, the topmost folder that is in the way of each is covered by an empty one, in which
// only the given ones appear, under their own names. Nothing changes for anybody else. Needs root, with the right to mount.
// Called on a locked thread.
func makeReachable(names []string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// What is mounted on the host later is seen here, and not the other way round.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("part from the host's mounts: %w", err)
	}
	type shown struct {
		name   string
		source *os.File
		folder bool
	}
	var all []shown
	var covers []string
	defer func() {
		for _, s := range all {
			s.source.Close()
		}
	}()
	for _, name := range names {
		real, err := filepath.EvalSymlinks(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", name, err)
		}
		obstacle, err := topObstacle(real)
		if err != nil {
			return err
		}
		if obstacle == "" {
			continue
		}
		fd, err := unix.Open(real, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("show %s: %w", name, err)
		}
		source := os.NewFile(uintptr(fd), real)
		info, err := source.Stat()
		if err != nil {
			return errors.Join(fmt.Errorf("show %s: %w", name, err), source.Close())
		}
		all = append(all, shown{real, source, info.IsDir()})
		covers = append(covers, obstacle)
	}
	slices.Sort(covers)
	covers = slices.Compact(covers)
	defer unix.Umask(unix.Umask(0o022))
	for _, cover := range covers {
		if err := unix.Mount("tmpfs", cover, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m"); err != nil {
			return fmt.Errorf("cover %s: %w", cover, err)
		}
	}
	// A folder comes before what is in it.
	slices.SortFunc(all, func(a, b shown) int { return strings.Compare(a.name, b.name) })
	for _, s := range all {
		if err := show(s.name, s.folder, s.source); err != nil {
			return err
		}
	}
	for _, cover := range covers {
		if err := unix.Mount("", cover, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("close %s: %w", cover, err)
		}
	}
	return nil
}

// show mounts source on a name below a cover.
func show(name string, folder bool, source *os.File) error {
	if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("show %s: %w", name, err)
		}
		if folder {
			err = os.Mkdir(name, 0o755)
		} else {
			err = os.WriteFile(name, nil, 0o644)
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", name, err)
		}
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", source.Fd()), name, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("show %s: %w", name, err)
	}
	return nil
}

// topObstacle is the uppermost folder above name that only some may pass, "" for none. name is absolute and without links.
func topObstacle(name string) (string, error) {
	obstacle := ""
	for dir := filepath.Dir(name); dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return "", fmt.Errorf("look at %s: %w", dir, err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			obstacle = dir
		}
	}
	return obstacle, nil
}
