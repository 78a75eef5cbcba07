package usage

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// Disk returns the usage of the volume that holds a path.
func (m *Meter) Disk(path string) (Amount, error) {
	_, total, free, err := space(path)
	return Amount{total - free, &total, "B"}, err
}

// Volume is Disk for what this account may use, where quotas limit that.
func (m *Meter) Volume(path string) (Amount, error) {
	available, total, free, err := space(path)
	used := total - free
	total = used + available
	return Amount{used, &total, "B"}, err
}

// space returns the bytes that this account may write to a volume, its size, and its free bytes.
func space(path string) (available, total, free float64, err error) {
	name, err := windows.UTF16PtrFromString(path)
	var a, t, f uint64
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &a, &t, &f)
	}
	if err != nil {
		return 0, 0, 0, fmt.Errorf("look at the volume of %s: %w", path, err)
	}
	return float64(a), float64(t), float64(f), nil
}
