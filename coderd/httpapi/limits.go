package httpapi

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	limitWindow = time.Minute
	// maxCounted bounds the table of callers. A full one forgets an arbitrary caller, so it never makes callers share a
	// count.
	maxCounted = 50_000
)

// caller is whose requests are counted together: a user, or the network of an address without a session.
type caller struct {
	user uuid.UUID
	from netip.Prefix
}

// network returns the caller for a request without a session. An IPv6 client is its /64.
func network(addr netip.Addr) caller {
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	from, _ := addr.Prefix(bits) // the zero Prefix for an unknown address
	return caller{from: from}
}

// requestCount is what a caller has asked for since its window began.
type requestCount struct {
	n    int
	ends time.Time
}

// limits counts the requests to the API of each caller, on this server. Safe for concurrent use. A nil *limits counts
// nothing.
type limits struct {
	perMinute int

	mu     sync.Mutex
	counts map[caller]*requestCount // guarded by mu
}

// newLimits returns nil if there is no limit.
func newLimits(perMinute int) *limits {
	if perMinute <= 0 {
		return nil
	}
	return &limits{perMinute: perMinute, counts: map[caller]*requestCount{}}
}

// take counts a request of a caller and refuses it if there were too many. Headers report how many the caller has left.
func (l *limits) take(w http.ResponseWriter, route Route, c caller) error {
	if l == nil || route.Uncounted != "" || !strings.Contains(route.Pattern, " /api/") {
		return nil
	}
	n, wait := l.count(c)
	seconds := strconv.Itoa(int((wait + time.Second - 1) / time.Second))
	h := w.Header()
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.perMinute))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(max(l.perMinute-n, 0)))
	h.Set("X-RateLimit-Reset", seconds)
	if n <= l.perMinute {
		return nil
	}
	h.Set("Retry-After", seconds)
	return fault.New(fault.RateLimited, "You have sent more than %d requests in a minute.", l.perMinute).
		WithDetail("Try again in %s seconds.", seconds)
}

// count counts a request. It returns how many there were in the caller's window, and when that ends.
func (l *limits) count(c caller) (n int, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	found := l.counts[c]
	if found == nil || !now.Before(found.ends) {
		if found == nil && len(l.counts) >= maxCounted {
			l.makeRoom(now)
		}
		found = &requestCount{ends: now.Add(limitWindow)}
		l.counts[c] = found
	}
	found.n++
	return found.n, found.ends.Sub(now)
}

// makeRoom deletes counts whose window has ended or, if there are none, an arbitrary one. l.mu is held.
func (l *limits) makeRoom(now time.Time) {
	var last caller
	for c, count := range l.counts {
		if last = c; !now.Before(count.ends) {
			delete(l.counts, c)
		}
	}
	if len(l.counts) >= maxCounted {
		delete(l.counts, last)
	}
}

// Uncounted exempts a route from the limit on requests, for a reason.
func Uncounted(reason string) RouteOption { return func(r *Route) { r.Uncounted = reason } }
