package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestTakeDuringSweep: an executor that starts while another sweeps the accounts that are free waits for them. On a host where each number was
// used once, it would find all of them taken.
func TestTakeDuringSweep(t *testing.T) {
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
	type result struct {
		*accounts
		err error
	}
	taken := make(chan result, 1)
	go func() {
		a, err := takeAccountsIn(dir)
		taken <- result{a, err}
	}()
	testwait.Until(t, "the executor waits", func() error {
		select {
		case early := <-taken:
			t.Fatalf("the executor did not wait: %v", early.err)
		default:
		}
		return waitedFor(all)
	})
	for i := len(held) - 1; i >= 0; i-- { // as the sweep ends: the lock of all is the last
		if err := held[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	one := testwait.For(t, "the accounts", taken)
	if one.err != nil {
		t.Fatal(one.err)
	}
	two, err := takeAccountsIn(dir)
	if err != nil || two.first == one.first {
		t.Errorf("the second executor: %v, accounts from %d and %d", err, one.first, two.first)
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

// TestTemporaryFoldersAreSearchedOnce: an executor searches the host's temporary folders if it is the first since the machine started, or an
// executor whose jobs shared them has ended. Otherwise it finds nothing there, and does not spend the time.
func TestTemporaryFoldersAreSearchedOnce(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root has accounts to give")
	}
	dir, temporary := t.TempDir(), t.TempDir()
	take := func() *accounts {
		t.Helper()
		a, err := takeAccountsIn(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.lock.Close() })
		a.temporary = []string{temporary}
		// Executors of other tests have the accounts from jobAccounts on, and run processes.
		a.first, a.lowest = a.first+executorsMost*a.count, a.lowest+executorsMost*a.count
		return a
	}
	// leftOf plants a file of an account for a sweep by another one, and reports whether it remains.
	leftOf := func(owner, by *accounts, shared, must bool) bool {
		t.Helper()
		file := filepath.Join(temporary, strconv.Itoa(owner.first+1))
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(file, owner.first+1, owner.first+1); err != nil {
			t.Fatal(err)
		}
		if err := by.sweepDead("", shared, must); err != nil {
			t.Fatal(err)
		}
		_, err := os.Lstat(file)
		return err == nil
	}
	earlier := take() // of a version that makes no marks, still alive
	first := take()
	if leftOf(first, first, false, false) {
		t.Error("the first executor since the machine started does not search")
	}
	if !leftOf(first, first, false, false) {
		t.Error("an executor searches although no job has shared the folders since")
	}
	if leftOf(first, first, false, true) {
		t.Error("an executor that must search does not")
	}
	if !leftOf(earlier, first, false, true) {
		t.Error("an executor removes what belongs to a living one")
	}
	if err := earlier.lock.Close(); err != nil {
		t.Fatal(err)
	}
	if leftOf(earlier, first, false, false) {
		t.Error("an executor does not search although one that made no marks has ended")
	}
	sharing := take()
	if err := sharing.sweepDead("", true, false); err != nil {
		t.Fatal(err)
	}
	if !leftOf(first, first, false, false) {
		t.Error("an executor searches for files of one that still runs")
	}
	if err := sharing.close(); err != nil {
		t.Fatal(err)
	}
	if again := take(); again.first != sharing.first || leftOf(again, again, true, false) {
		t.Errorf("the accounts from %d were taken again as those from %d, and not searched for", sharing.first, again.first)
	} else if leftOf(again, again, true, false) {
		t.Error("an executor whose jobs share the folders does not search for what a killed one with its accounts left")
	}
}
