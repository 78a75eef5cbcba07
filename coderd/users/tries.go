package users

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Bounds on wrong passwords in one window. They are counted per account and address together: with either alone, one
// client could lock out all others. An address that guesses at many accounts has fewer tries at each, but always one:
// other clients' failures elsewhere never cause a right password to be refused at the first try.
const (
	triesWindow    = 10 * time.Minute
	pairTries      = 10  // wrong passwords for one account from one address
	addressTries   = 100 // from one address, above which each account has pairTriesAfter
	pairTriesAfter = 1
	// maxTries bounds the table. Each entry costs a hash, of which the server computes some dozens a second, so the
	// table stays far below.
	maxTries = 50_000
)

// pair is a hash of the account as named, and the network of the address.
type pair struct {
	account [16]byte
	from    netip.Prefix
}

// newPair treats an IPv6 client as its /64, and every spelling of an account's name as the same.
func newPair(account string, addr netip.Addr) pair {
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	from, _ := addr.Prefix(bits) // the zero Prefix for an unknown address
	sum := sha256.Sum256([]byte(strings.ToLower(strings.TrimSpace(account))))
	return pair{[16]byte(sum[:16]), from}
}

type failures struct {
	n    int
	ends time.Time
}

// tries counts wrong passwords. Safe for concurrent use.
type tries struct {
	now func() time.Time

	mu        sync.Mutex
	pairs     map[pair]*failures         // guarded by mu
	addresses map[netip.Prefix]*failures // guarded by mu
}

func newTries() *tries {
	return &tries{now: time.Now, pairs: map[pair]*failures{}, addresses: map[netip.Prefix]*failures{}}
}

// left returns how many wrong passwords a pair has left, out of how many, and how long until it has all of them again.
func (t *tries) left(p pair) (left, limit int, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	limit = pairTries
	if a := t.addresses[p.from]; a != nil && now.Before(a.ends) && a.n >= addressTries {
		limit = pairTriesAfter
	}
	f := t.pairs[p]
	if f == nil || !now.Before(f.ends) {
		return limit, limit, triesWindow
	}
	return max(limit-f.n, 0), limit, f.ends.Sub(now)
}

// failed counts a wrong password.
func (t *tries) failed(p pair) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	note(t.pairs, p, now)
	note(t.addresses, p.from, now)
}

// passed forgets the wrong passwords that preceded a right one.
func (t *tries) passed(p pair) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pairs, p)
}

func note[K comparable](table map[K]*failures, key K, now time.Time) {
	f := table[key]
	if f != nil && now.Before(f.ends) {
		f.n++
		return
	}
	if f == nil && len(table) >= maxTries {
		makeRoom(table, now)
	}
	table[key] = &failures{1, now.Add(triesWindow)}
}

// makeRoom deletes entries that have ended or, if there are none, an arbitrary one. A full table never makes clients
// share a count.
func makeRoom[K comparable](table map[K]*failures, now time.Time) {
	var last K
	for key, f := range table {
		if last = key; !now.Before(f.ends) {
			delete(table, key)
		}
	}
	if len(table) >= maxTries {
		delete(table, last)
	}
}

// mayTry refuses a pair with no tries left. Headers report how many the client has.
func (s *Service) mayTry(w http.ResponseWriter, p pair) error {
	left, limit, wait := s.tries.left(p)
	seconds := strconv.Itoa(int((wait + time.Second - 1) / time.Second))
	h := w.Header()
	h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset", seconds)
	if left > 0 {
		return nil
	}
	h.Set("Retry-After", seconds)
	return fault.New(fault.RateLimited, "Too many wrong passwords for this account from your address.").
		WithDetail("Try again in %s seconds.", seconds)
}

// checkPair verifies a password from a client within the bounds on guessing. A request that ends before it has an
// answer does not count.
func (s *Service) checkPair(w http.ResponseWriter, r *http.Request, account, password, stored string) (bool, error) {
	p := newPair(account, httpapi.ClientAddr(r.Context()))
	if err := s.mayTry(w, p); err != nil {
		return false, err
	}
	release, err := s.passwords.enter(r.Context(), p)
	if err != nil {
		return false, err
	}
	defer release()
	// Check again when this request gets its turn: otherwise the same count would admit many concurrent requests.
	if err := s.mayTry(w, p); err != nil {
		return false, err
	}
	good, err := verify(password, stored)
	if err != nil {
		return false, fmt.Errorf("check password: %w", err)
	}
	if good {
		s.tries.passed(p)
	} else {
		s.tries.failed(p)
	}
	return good, nil
}
