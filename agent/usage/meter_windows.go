package usage

import (
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func rootFS() fs.FS { return os.DirFS(".") } // everything is asked of the kernel

var (
	kernel32             = windows.NewLazySystemDLL("kernel32.dll")
	globalMemoryStatusEx = kernel32.NewProc("GlobalMemoryStatusEx")
	getSystemTimes       = kernel32.NewProc("GetSystemTimes")
)

// hostCPUSeconds returns the time that processors were busy. The kernel's time includes that of idle processors.
func (m *Meter) hostCPUSeconds() (float64, error) {
	var idle, kernel, user windows.Filetime
	ok, _, err := getSystemTimes.Call(uintptr(unsafe.Pointer(&idle)), uintptr(unsafe.Pointer(&kernel)),
		uintptr(unsafe.Pointer(&user)))
	if ok == 0 {
		return 0, fmt.Errorf("read the processors' times: %w", err)
	}
	return seconds(kernel) - seconds(idle) + seconds(user), nil
}

// seconds converts a span in units of 100 ns.
func seconds(t windows.Filetime) float64 {
	return float64(uint64(t.HighDateTime)<<32|uint64(t.LowDateTime)) / 1e7
}

// memoryStatus is MEMORYSTATUSEX of sysinfoapi.h.
type memoryStatus struct {
	length, load                                                                    uint32
	total, available, pageTotal, pageAvailable, virtual, virtualAvailable, extended uint64
}

// HostMemory returns the memory in use of the machine.
func (m *Meter) HostMemory() (Amount, error) {
	var s memoryStatus
	s.length = uint32(unsafe.Sizeof(s))
	if ok, _, err := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&s))); ok == 0 {
		return Amount{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	total := float64(s.total)
	return Amount{total - float64(s.available), &total, "B"}, nil
}
