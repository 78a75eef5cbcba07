package disk

import (
	"golang.org/x/sys/unix"
)

func look(dir string) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Usage{}, err
	}
	block := uint64(s.Bsize)
	return Usage{Free: s.Bavail * block, Total: s.Blocks * block, FreeFiles: s.Ffree, TotalFiles: s.Files,
		ReadOnly: s.Flags&unix.MNT_RDONLY != 0}, nil
}
