package disk

import (
	"golang.org/x/sys/windows"
)

// causes are the system's errors.
var causes = map[kind][]error{
	full: {windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL}, overQuota: {windows.ERROR_DISK_QUOTA_EXCEEDED},
	readOnly: {windows.ERROR_WRITE_PROTECT},
}

func look(dir string) (Usage, error) {
	var u Usage
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return u, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &u.Free, &u.Total, nil)
	return u, err
}
