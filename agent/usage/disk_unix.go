//go:build linux || darwin

package usage

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Disk returns the usage of the file system that holds a path.
func (m *Meter) Disk(path string) (Amount, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Amount{}, fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	block := float64(s.Bsize)
	total := float64(s.Blocks) * block
	return Amount{total - float64(s.Bfree)*block, &total, "B"}, nil
}
