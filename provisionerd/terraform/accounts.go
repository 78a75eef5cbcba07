package terraform

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/provisionerd/terraform/sandbox"
)

// Accounts of jobs and workspaces are numbers of our own, without an entry in the host's /etc/passwd. The ranges lie above
// what distributions, systemd and container engines assign. A container that maps few accounts uses the low ones.
const (
	jobAccounts     = 1_950_000_000
	perExecutor     = 256 // accounts that one executor claims, one for each slot
	executorsMost   = 256
	spaceAccounts   = 1_960_000_000
	spaceAccountsTo = 2_140_000_000

	lowPerExecutor     = 80
	lowSpaceAccounts   = 51_000
	lowSpaceAccountsTo = 61_000
)

// accounts are the numbers that an executor's jobs run as, claimed on this host as long as the lock is held, and the range
// of workspaces' accounts, which belong to their folders.
type accounts struct {
	lock           *os.File
	first, count   int
	spaces, beyond int // range of workspaces' accounts
}

// claimAccounts claims accounts that no other executor on this host uses. It needs root.
func claimAccounts() (*accounts, error) {
	a := accounts{first: jobAccounts, count: perExecutor, spaces: spaceAccounts, beyond: spaceAccountsTo}
	if !mapped(spaceAccountsTo) {
		a = accounts{first: sandbox.LowestAccount, count: lowPerExecutor, spaces: lowSpaceAccounts, beyond: lowSpaceAccountsTo}
	}
	if !mapped(a.beyond) {
		return nil, fmt.Errorf("this container maps fewer than %d accounts", lowSpaceAccountsTo)
	}
	dir := filepath.Join(shortVolatileDir(true), "codermesh-accounts")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("claim accounts: %w", err)
	}
	if err := ownedByUs(dir); err != nil {
		return nil, err
	}
	for n := range executorsMost {
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(n)), os.O_RDWR|os.O_CREATE|noFollow, 0o600)
		if err != nil {
			return nil, fmt.Errorf("claim accounts: %w", err)
		}
		if tryLock(lock) == nil {
			a.lock = lock
			a.first += n * a.count
			return &a, nil
		}
		if err := lock.Close(); err != nil {
			return nil, fmt.Errorf("claim accounts: %w", err)
		}
	}
	return nil, errors.New("all accounts for jobs are in use on this host")
}

// close releases the accounts.
func (a *accounts) close() error {
	if a == nil {
		return nil
	}
	return a.lock.Close()
}

// slot returns the account of a slot.
func (a *accounts) slot(n int) (int, error) {
	if n < 0 || n >= a.count {
		return 0, fmt.Errorf("choose account: slot %d is beyond the %d accounts of an executor", n, a.count)
	}
	return a.first + n, nil
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
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && int64(uid) >= inside && int64(uid) < inside+count {
			return true
		}
	}
	return false
}

// writeAccountFiles writes what a sandbox sees as /etc/passwd and /etc/group: the host's entries, preceded by the one
// account that the sandbox runs as. A uid of 0 means our own account.
func writeAccountFiles(passwd, group, name string, uid int, home, shell string) error {
	if uid == 0 {
		uid = os.Geteuid()
	}
	home, shell = strings.NewReplacer(":", "", "\n", "").Replace(home), strings.NewReplacer(":", "", "\n", "").Replace(shell)
	for file, line := range map[string]string{
		passwd: fmt.Sprintf("%s:x:%d:%d::%s:%s\n", name, uid, uid, home, shell),
		group:  fmt.Sprintf("%s:x:%d:\n", name, uid),
	} {
		theirs := hostLines("/etc/"+map[string]string{passwd: "passwd", group: "group"}[file], name)
		if err := os.WriteFile(file+".new", append([]byte(line), theirs...), 0o644); err != nil {
			return fmt.Errorf("write accounts: %w", err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			return fmt.Errorf("write accounts: %w", err)
		}
	}
	return nil
}

// hostLines returns the lines of a file of accounts, except the line with the given name. It returns none if the host lacks
// the file.
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
