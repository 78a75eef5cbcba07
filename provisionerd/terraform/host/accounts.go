package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// Accounts of jobs and workspaces are numbers of our own, without an entry in the host's /etc/passwd. The ranges lie
// above what distributions, systemd and container engines assign. A container that maps few accounts uses the low ones.
const (
	jobAccounts     = 1_950_000_000
	perExecutor     = 256 // accounts that one executor takes; each job gets another
	executorsMost   = 256
	spaceAccounts   = 1_960_000_000
	spaceAccountsTo = 2_140_000_000

	lowPerExecutor     = 80
	lowSpaceAccounts   = 51_000
	lowSpaceAccountsTo = 61_000
)

// accounts are the numbers that an executor's jobs run as, taken on this host as long as the lock is held, and the
// range of workspaces' accounts, which belong to their folders.
type accounts struct {
	dir            string // of the locks
	lock           *os.File
	lowest         int // of all executors' jobs
	first, count   int
	spaces, beyond int      // range of workspaces' accounts
	temporary      []string // folders of the host that jobs without namespaces share

	mu      sync.Mutex   // guards the fields below
	next    int          // where the search for a free one begins, relative to first
	taken   map[int]bool // by slots, and those that are unswept
	unswept []int        // they left something that cannot be removed yet
}

// takeAccounts takes accounts that no other executor on this host uses. It needs root, and waits while another
// executor sweeps.
func takeAccounts() (*accounts, error) { return takeAccountsIn(accountLocks()) }

func takeAccountsIn(dir string) (_ *accounts, err error) {
	a := &accounts{first: jobAccounts, count: perExecutor, spaces: spaceAccounts, beyond: spaceAccountsTo,
		taken: map[int]bool{}}
	if !mapped(spaceAccountsTo) {
		a = &accounts{first: sandbox.LowestAccount, count: lowPerExecutor, spaces: lowSpaceAccounts,
			beyond: lowSpaceAccountsTo, taken: map[int]bool{}}
	}
	a.lowest, a.temporary = a.first, temporaryDirs
	if !mapped(a.beyond) {
		return nil, fmt.Errorf("this container maps fewer than %d accounts", lowSpaceAccountsTo)
	}
	a.dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("take accounts: %w", err)
	}
	if err := ownedByUs(dir); err != nil {
		return nil, err
	}
	all, err := lockAll(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	for n := range executorsMost {
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(n)), os.O_RDWR|os.O_CREATE|noFollow, 0o600)
		if err != nil {
			return nil, fmt.Errorf("take accounts: %w", err)
		}
		if tryLock(lock) == nil {
			a.lock = lock
			a.first += n * a.count
			return a, nil
		}
		if err := lock.Close(); err != nil {
			return nil, fmt.Errorf("take accounts: %w", err)
		}
	}
	return nil, errors.New("all accounts for jobs are in use on this host")
}

// lockAll waits for the lock of all accounts: its holder takes some, or holds the locks of free ones to sweep. Close
// the file.
func lockAll(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "all"), os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock accounts: %w", err)
	}
	if err := waitLock(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("lock accounts: %w", err), lock.Close())
	}
	return lock, nil
}

func accountLocks() string { return filepath.Join(shortVolatileDir(true), "codermesh-accounts") }

// close releases the accounts.
func (a *accounts) close() error {
	if a == nil {
		return nil
	}
	return a.lock.Close()
}

// take returns an account that nothing on this host belongs to, for one job. Each account comes in turn.
func (a *accounts) take() (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range a.count {
		uid := a.first + a.next
		a.next = (a.next + 1) % a.count
		if !a.taken[uid] {
			a.taken[uid] = true
			return uid, nil
		}
	}
	return 0,
		fmt.Errorf("choose account: all %d accounts of this executor are in use: files of earlier jobs may be left "+
			"in %s", a.count, strings.Join(a.temporary, ", "))
}

// giveBack frees an account whose processes have ended, once nothing belongs to it. shared is set if jobs share the
// host's temporary folders: then it removes what the account left there, and what others left that could not be removed
// before. An account that still owns something is not used again.
func (a *accounts) giveBack(uid int, shared bool) error {
	a.mu.Lock()
	all := []int{uid}
	if shared {
		all = append(all, a.unswept...)
		a.unswept = nil
	}
	a.mu.Unlock()
	var errs []error
	for _, uid := range all {
		var err error
		if shared {
			err = a.leavings(uid).Sweep()
		}
		a.mu.Lock()
		if err == nil {
			delete(a.taken, uid)
		} else {
			a.unswept = append(a.unswept, uid)
			errs = append(errs, fmt.Errorf("remove what account %d left: %w", uid, err))
		}
		a.mu.Unlock()
	}
	return errors.Join(errs...)
}

// leavings finds what an account left where jobs and workspaces without namespaces may write.
func (a *accounts) leavings(uid int) sandbox.Leavings {
	return sandbox.Leavings{Dirs: a.temporary, Of: func(owner int) bool { return owner == uid }, Jobs: a.ours}
}

// ours reports whether uid belongs to a job or workspace of any executor.
func (a *accounts) ours(uid int) bool {
	return uid >= a.lowest && uid < a.lowest+executorsMost*a.count || a.space(uid)
}

// sweepDead ends what runs under the accounts of this executor, and removes what they and those of executors that have
// ended left. It leaves the accounts of executors alone whose Terraform may still be saving its state.
//
// shared is set if jobs of this executor share the host's temporary folders. To search these takes seconds where they
// hold many files. So it searches only if it must, or if an executor that may have left something has ended, or for the
// first time since the machine started.
func (a *accounts) sweepDead(self string, shared, must bool) (err error) {
	all, err := lockAll(a.dir) // another executor would find the locks of all free accounts taken
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	own := a.mark((a.first - a.lowest) / a.count)
	unknown := !isMarked(a.searched()) // executors of versions that make no marks may have run
	must = must || unknown || isMarked(own)
	if shared {
		if err := mark(own); err != nil {
			return err
		}
	}
	running, err := sandbox.Running()
	if err != nil {
		return err
	}
	for uid := range running {
		if uid >= a.first && uid < a.first+a.count {
			if err := sandbox.KillAccount(self, uid); err != nil {
				return err
			}
		}
	}
	dead := map[int]bool{a.first: true} // by their first accounts
	var marks []string                  // of the dead
	if !shared {
		marks = append(marks, own)
	}
	for n := range executorsMost {
		lock, err := os.OpenFile(filepath.Join(a.dir, strconv.Itoa(n)), os.O_RDWR|os.O_CREATE|noFollow, 0o600)
		if err != nil {
			return fmt.Errorf("sweep accounts: %w", err)
		}
		defer lock.Close() // held until all is swept: executors of earlier versions do not wait
		first := a.lowest + n*a.count
		busy := false
		for uid := range running {
			busy = busy || uid >= first && uid < first+a.count
		}
		switch {
		case first == a.first:
		case !busy && tryLock(lock) == nil:
			dead[first] = true
			marks = append(marks, a.mark(n))
			must = must || isMarked(a.mark(n))
		case unknown:
			if err := mark(a.mark(n)); err != nil {
				return err
			}
		}
	}
	ofDead := func(uid int) bool { return a.ours(uid) && !a.space(uid) && dead[uid-(uid-a.lowest)%a.count] }
	sweep := sandbox.Leavings{Of: ofDead, Jobs: a.ours}
	if must {
		sweep.Dirs = a.temporary
	}
	if err := sweep.Sweep(); err != nil || !must {
		return err
	}
	for _, name := range marks {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep accounts: %w", err)
		}
	}
	return mark(a.searched())
}

// searched returns the name of the mark that the temporary folders were searched for files of all accounts since the
// machine started.
func (a *accounts) searched() string { return filepath.Join(a.dir, "searched") }

// mark returns the name of the mark that the nth range of accounts may own something in the temporary folders.
func (a *accounts) mark(n int) string { return filepath.Join(a.dir, strconv.Itoa(n)+".shared") }

func isMarked(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

func mark(name string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return fmt.Errorf("mark accounts: %w", err)
	}
	return file.Close()
}

// space reports whether uid belongs to a workspace.
func (a *accounts) space(uid int) bool { return uid >= a.spaces && uid < a.beyond }

// mapped reports whether this user namespace has the account.
func mapped(uid int) bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, count int64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && int64(uid) >= inside &&
			int64(uid) < inside+count {
			return true
		}
	}
	return false
}

// writeAccountFiles writes passwd and group into a sandbox's /etc: the host's entries, preceded by the one account that
// the sandbox runs as.
func writeAccountFiles(etc string, a account) error {
	if a.uid == 0 {
		a.uid = os.Geteuid()
	}
	plain := strings.NewReplacer(":", "", "\n", "")
	for name, line := range map[string]string{
		"passwd": fmt.Sprintf("%s:x:%d:%d::%s:%s\n", a.name, a.uid, a.uid, plain.Replace(a.home), plain.Replace(a.shell)),
		"group":  fmt.Sprintf("%s:x:%d:\n", a.name, a.uid),
	} {
		theirs := hostLines(filepath.Join(configDir, name), a.name)
		if err := os.WriteFile(filepath.Join(etc, name), append([]byte(line), theirs...), 0o644); err != nil {
			return fmt.Errorf("write accounts: %w", err)
		}
	}
	return nil
}

// hostLines returns the lines of a file of accounts, except the line with the given name. It returns none if the host
// lacks the file.
func hostLines(file, without string) []byte {
	in, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer in.Close()
	var out bytes.Buffer
	lines := bufio.NewScanner(io.LimitReader(in, 1<<20))
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), without+":") {
			out.WriteString(lines.Text() + "\n")
		}
	}
	return out.Bytes()
}

// account is the account that a sandbox runs as, as its programs see it.
type account struct {
	name, home, shell string
	uid               int // 0 means our own
}
