package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// followNames calls changed after something in a folder with configuration files has changed, or in the folders to
// which its live names lead, until ctx ends.
func followNames(ctx context.Context, host string, changed func()) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch %s: %w", host, err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	defer context.AfterFunc(ctx, func() { events.Close() })()
	buf := make([]byte, 64<<10)
	for {
		addWatch(fd, host)
		for _, name := range liveNames {
			addWatch(fd, filepath.Dir(resolve(filepath.Join(host, name)))) // the name may have become a link
		}
		changed()
		if _, err := events.Read(buf); errors.Is(err, os.ErrClosed) {
			return nil
		} else if err != nil {
			return fmt.Errorf("watch %s: %w", host, err)
		}
	}
}

// addWatch does nothing if the folder is watched already, or does not exist.
func addWatch(fd int, dir string) {
	_, _ = unix.InotifyAddWatch(fd, dir,
		unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR)
}
