//go:build unix

package embedded

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// sized returns the settings that depend on the machine's memory: small below 4 GiB, where the server runs on a laptop
// or a small virtual machine, and otherwise a sixty-fourth of the memory for PostgreSQL's own cache. The kernel caches
// the same files, and each start and stop of PostgreSQL visits all of its cache's bookkeeping: for a sixteenth that
// took a tenth of a server's start. A memory of 0 is unknown, and counts as small.
func sized(memory uint64) []string {
	if memory < 4*gibibyte {
		return []string{"shared_buffers=32MB", "max_connections=40", "max_wal_size=256MB", "autovacuum_max_workers=1"}
	}
	megabytes := func(bytes uint64) string { return fmt.Sprintf("%dMB", bytes/mebibyte) }
	return []string{
		"shared_buffers=" + megabytes(min(max(memory/64, gibibyte/4), 4*gibibyte)),
		"effective_cache_size=" + megabytes(memory/4),
		"maintenance_work_mem=" + megabytes(min(memory/64, gibibyte)),
		"work_mem=8MB", "max_connections=100", "max_wal_size=1GB", "autovacuum_max_workers=3",
	}
}

// machineMemory returns the memory that this process may use, in bytes: the machine's, or its control group's limit if
// that is lower. It returns 0 if the memory is unknown.
func machineMemory() uint64 {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	memory := totalMemory(meminfo)
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			memory = min(memory, limit)
		}
	}
	return memory
}

// totalMemory returns MemTotal from /proc/meminfo, in bytes, or 0 if it is missing.
func totalMemory(meminfo []byte) uint64 {
	for lines := bufio.NewScanner(bytes.NewReader(meminfo)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "MemTotal:" {
			continue
		}
		kibibytes, err := strconv.ParseUint(fields[1], 10, 53)
		if err != nil {
			return 0
		}
		return kibibytes << 10
	}
	return 0
}
