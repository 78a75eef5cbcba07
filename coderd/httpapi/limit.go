package httpapi

import (
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/codermesh/codermesh/internal/fault"
)

// maxClients bounds a limiter's memory. Clients beyond it share one count.
const maxClients = 10_000

// Limiter bounds how many requests one address may make in a window of time.
type Limiter struct {
	requests int
	window   time.Duration

	mu      sync.Mutex
	clients map[netip.Prefix]*count // guarded by mu
}

type count struct {
	used int
	ends time.Time
}

// NewLimiter allows so many requests per window and address. An IPv6 client is its /64.
func NewLimiter(requests int, window time.Duration) *Limiter {
	return &Limiter{requests: requests, window: window, clients: map[netip.Prefix]*count{}}
}

// Wrap answers RateLimited in h's place when an address asks too often.
func (l *Limiter) Wrap(h HandlerFunc) HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		left, wait := l.take(ClientAddr(r.Context()), time.Now())
		seconds := strconv.Itoa(int((wait + time.Second - 1) / time.Second))
		w.Header().Set("X-RateLimit-Limit", strconv.Itoa(l.requests))
		w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(max(left, 0)))
		w.Header().Set("X-RateLimit-Reset", seconds)
		if left < 0 {
			w.Header().Set("Retry-After", seconds)
			return fault.New(fault.RateLimited, "Too many tries from your address.").WithDetail("Try again in %s seconds.", seconds)
		}
		return h(w, r)
	}
}

// take counts a request: how many are left, less than 0 when it is too many, and how long until the window ends.
func (l *Limiter) take(addr netip.Addr, now time.Time) (left int, wait time.Duration) {
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	key, _ := addr.Prefix(bits) // the zero Prefix for an unknown address
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clients[key]
	if c == nil && len(l.clients) >= maxClients {
		for k, old := range l.clients {
			if now.After(old.ends) {
				delete(l.clients, k)
			}
		}
		if len(l.clients) >= maxClients {
			key = netip.Prefix{}
			c = l.clients[key]
		}
	}
	if c == nil || now.After(c.ends) {
		c = &count{ends: now.Add(l.window)}
		l.clients[key] = c
	}
	c.used++
	return l.requests - c.used, c.ends.Sub(now)
}
