package appproxy

import (
	"net"
	"strconv"
	"sync"
)

// Requests in progress at once, websockets and those that wait for a connection to the app among them. Each holds a
// connection of its visitor, two goroutines and up to 64 KiB, so that a workspace that never answers, or its visitors,
// could take the place of all others.
const (
	maxPerApp   = 1024
	maxPerOwner = 2048 // of workspaces
	maxVisits   = 8192
)

// crowd counts the requests in progress. The zero value is ready.
type crowd struct {
	mu     sync.Mutex // guards the fields below
	all    int
	apps   map[string]int
	owners map[string]int
}

// enter begins a request, unless there are too many. leave ends it, and must be called once.
func (c *crowd) enter(route string, a App) (leave func(), ok bool) {
	app := net.JoinHostPort(route, strconv.Itoa(int(a.Port)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= maxVisits || c.apps[app] >= maxPerApp || c.owners[a.Place.Owner] >= maxPerOwner {
		return nil, false
	}
	if c.apps == nil {
		c.apps, c.owners = map[string]int{}, map[string]int{}
	}
	c.all++
	c.apps[app]++
	c.owners[a.Place.Owner]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		less(c.apps, app)
		less(c.owners, a.Place.Owner)
	}, true
}

func less(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
