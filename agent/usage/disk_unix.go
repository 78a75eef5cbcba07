//go:build linux || darwin

package usage

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Disk returns the usage of the file system that holds a path.
func (m *Meter) Disk(path string) (Amount, error) {
	used, _, total, err := blocks(path)
	return Amount{used, &total, "B"}, err
}

// Volume is Disk without the space that only root may use: a volume is full when the workspace's programs cannot write
// to it.
func (m *Meter) Volume(path string) (Amount, error) {
	used, available, _, err := blocks(path)
	total := used + available
	return Amount{used, &total, "B"}, err
}

// blocks returns the used bytes of a file system, those that are free for everybody, and its size.
func blocks(path string) (used, available, total float64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, 0, fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	block := float64(s.Bsize)
	total = float64(s.Blocks) * block
	return total - float64(s.Bfree)*block, float64(s.Bavail) * block, total, nil
}
