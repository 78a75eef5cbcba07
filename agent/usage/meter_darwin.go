package usage

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/mem"
)

func rootFS() fs.FS { return os.DirFS(".") } // everything is asked of the kernel

// hostCPUSeconds returns the time that processors were busy.
func (m *Meter) hostCPUSeconds() (float64, error) {
	times, err := cpu.Times(false)
	if err != nil || len(times) == 0 {
		return 0, fmt.Errorf("read the processors' times: %w", err)
	}
	return times[0].User + times[0].Nice + times[0].System, nil
}

// HostMemory returns the memory in use of the machine.
func (m *Meter) HostMemory() (Amount, error) {
	memory, err := mem.VirtualMemory()
	if err != nil {
		return Amount{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	total := float64(memory.Total)
	return Amount{total - float64(memory.Available), &total, "B"}, nil
}
