package bridge

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxRefused is how many keys may sign no one in, of clients from one network, before the server no longer tells
	// which it knows. It is far above what an agent with many keys offers before the right one.
	maxRefused = 60
	// forgiveEvery is how long it takes until one of them counts no more.
	forgiveEvery = 10 * time.Second
	// maxNetworks bounds the networks that are remembered.
	maxNetworks = 4096
)

// attempts limits failed sign-ins by network: an address of IPv4, or the first 64 bits of one of IPv6.
//
// A client may ask whether a key would sign someone in before it proves to have the key (RFC 4252, section 7). Public
// keys are public, so the answers tell who has an account here. The server answers a few such questions of a network in
// a minute. After more that were answered with no, all clients from there must prove each key first: only then is a key
// looked up, and the client told whether it counts.
//
// A client with a key that counts notices nothing, however many failures came from its network before: behind a load
// balancer, all clients have one address. What it was refused before it signed in is taken back. So the limit needs no
// exceptions, and what is not remembered can be limited.
type attempts struct {
	log *slog.Logger

	mu       sync.Mutex // guards the fields below
	networks map[netip.Prefix]tally
	swept    time.Time // when networks without refused keys were last looked for
}

// tally is what is known of a network.
type tally struct {
	until  time.Time // when no refused key counts any more: each adds forgiveEvery
	logged bool      // its log line was written
}

// exceeded reports whether clients from a network must prove a key before they are told whether it counts.
func (a *attempts) exceeded(network netip.Prefix) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, ok := a.networks[network]
	return !ok && len(a.networks) >= maxNetworks || time.Until(t.until) > (maxRefused-1)*forgiveEvery
}

// refuse counts a key that signed no one in. It reports whether it did: one beyond the limit is not counted.
func (a *attempts) refuse(network netip.Prefix) bool {
	counted, first := a.count(network)
	if first {
		a.log.Warn("many ssh keys of one network sign no one in: its clients must prove keys first", "addr", network)
	}
	return counted
}

// count is refuse without the log, which must not be written under a lock. first reports that the network has reached
// its limit.
func (a *attempts) count(network netip.Prefix) (counted, first bool) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	t, known := a.networks[network]
	if !known && len(a.networks) >= maxNetworks && !a.sweep(now) {
		return false, false
	}
	if !t.until.After(now) {
		t = tally{until: now}
	}
	if t.until.Sub(now) > (maxRefused-1)*forgiveEvery {
		return false, false
	}
	t.until = t.until.Add(forgiveEvery)
	first = !t.logged && t.until.Sub(now) > (maxRefused-1)*forgiveEvery
	t.logged = t.logged || first
	a.networks[network] = t
	return true, first
}

// sweep forgets networks whose keys count no more, at most once per forgiveEvery, and reports whether there is room.
// Called with mu held.
func (a *attempts) sweep(now time.Time) bool {
	if now.Sub(a.swept) < forgiveEvery {
		return false
	}
	a.swept = now
	for network, t := range a.networks {
		if !t.until.After(now) {
			delete(a.networks, network)
		}
	}
	return len(a.networks) < maxNetworks
}

// takeBack undoes refuse for keys that a client offered before it signed in.
func (a *attempts) takeBack(network netip.Prefix, keys int) {
	if keys == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if t, ok := a.networks[network]; ok {
		t.until = t.until.Add(-time.Duration(keys) * forgiveEvery)
		a.networks[network] = t
	}
}
