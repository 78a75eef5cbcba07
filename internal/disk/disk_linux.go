package disk

import (
	"golang.org/x/sys/unix"
)

func look(dir string) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Usage{}, err
	}
	block := uint64(max(s.Frsize, 0))
	if block == 0 {
		block = uint64(max(s.Bsize, 0))
	}
	return Usage{
		Free: s.Bavail * block, Total: s.Blocks * block, FreeFiles: s.Ffree, TotalFiles: s.Files,
		InMemory: s.Type == unix.TMPFS_MAGIC, ReadOnly: s.Flags&unix.MS_RDONLY != 0,
	}, nil
}
