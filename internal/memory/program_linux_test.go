package memory

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// fileKiB returns how much of files the process has mapped and used. The kernel counts files in memory, where the test may be, apart.
func fileKiB(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"RssFile:", "RssShmem:"} {
		_, after, _ := strings.Cut(string(status), kind)
		n, err := strconv.Atoi(strings.Fields(after)[0])
		if err != nil {
			t.Fatal(err)
		}
		kib += n
	}
	return kib
}

func TestProgramIsUnmapped(t *testing.T) {
	before := fileKiB(t)
	if err := freeProgram(); err != nil {
		t.Fatal(err)
	}
	if after := fileKiB(t); after >= before {
		t.Errorf("%d KiB of files are in use after the program's pages were unmapped, %d before", after, before)
	}
}

func TestProgramPart(t *testing.T) {
	for line, want := range map[string]uintptr{
		"00400000-00ce9000 r-xp 00000000 fe:00 4711                               /opt/our coder":          0x8e9000,
		"00ce9000-0179f000 r--p 008e9000 fe:00 4711                               /opt/our coder":          0xab6000,
		"0179f000-0181f000 rw-p 0139f000 fe:00 4711                               /opt/our coder":          0, // written to
		"00400000-00ce9000 rwxp 00000000 fe:00 4711                               /opt/our coder":          0,
		"00400000-00ce9000 r--s 00000000 fe:00 4711                               /opt/our coder":          0,
		"00400000-00ce9000 r-xp 00000000 fe:00 4711                               /opt/your/opt/our coder": 0,
		"00ce9000-00400000 r-xp 00000000 fe:00 4711                               /opt/our coder":          0,
		"7ffd0000-7ffd1000 r-xp 00000000 00:00 0                                  [vdso]":                  0,
		"": 0,
	} {
		if _, length, ok := programPart([]byte(line), "/opt/our coder"); length != want || ok != (want > 0) {
			t.Errorf("%q: %#x, %v, want %#x", line, length, ok, want)
		}
	}
}

func FuzzProgramPart(f *testing.F) {
	f.Add([]byte("00400000-00ce9000 r-xp 00000000 fe:00 4711                               /opt/coder"))
	f.Add([]byte("- r--p 0 0 0 /opt/coder"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if start, length, ok := programPart(line, "/opt/coder"); ok && (length == 0 || start+length < start) {
			t.Errorf("%q: %#x + %#x", line, start, length)
		}
	})
}
