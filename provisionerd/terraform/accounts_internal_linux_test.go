package terraform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/internal/testwait"
)

// TestClaimDuringSweep: an executor that starts while another sweeps the accounts that are free waits for them. On a host where each number was
// used once, it would find all of them taken.
func TestClaimDuringSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all, err := lockAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	held := []*os.File{all}
	for n := range executorsMost {
		lock, err := os.Create(filepath.Join(dir, strconv.Itoa(n)))
		if err != nil {
			t.Fatal(err)
		}
		if err := tryLock(lock); err != nil {
			t.Fatal(err)
		}
		held = append(held, lock)
	}
	type claim struct {
		*accounts
		err error
	}
	claimed := make(chan claim, 1)
	go func() {
		a, err := claimAccountsIn(dir)
		claimed <- claim{a, err}
	}()
	testwait.Until(t, "the claim waits", func() error {
		select {
		case early := <-claimed:
			t.Fatalf("the claim did not wait: %v", early.err)
		default:
		}
		return waitedFor(all)
	})
	for i := len(held) - 1; i >= 0; i-- { // as the sweep ends: the lock of all is the last
		if err := held[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	one := testwait.For(t, "the claim", claimed)
	if one.err != nil {
		t.Fatal(one.err)
	}
	two, err := claimAccountsIn(dir)
	if err != nil || two.first == one.first {
		t.Errorf("the second claim: %v, accounts from %d and %d", err, one.first, two.first)
	}
	for _, a := range []*accounts{one.accounts, two} {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}
}

// waitedFor returns an error unless a process waits for the lock of a file.
func waitedFor(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return err
	}
	inode := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, inode) {
			return nil
		}
	}
	return errors.New("no process waits for the lock")
}
