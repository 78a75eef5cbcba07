package terminal_test

import (
	"os"
	"syscall"
	"testing"
)

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// write lets one reader of a fifo continue, and waits for it.
func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
}

// read waits until one writer of a fifo is done.
func read(t *testing.T, path string) {
	t.Helper()
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
}
