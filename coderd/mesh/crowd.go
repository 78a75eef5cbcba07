package mesh

import (
	"sync"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// maxClients is how many clients of one user may be connected to this server at one time. A client takes about 50 kB.
const maxClients = 2048

// crowd counts the connected clients of each user, so that one user cannot take the memory and the files of the server.
type crowd struct {
	most int // of one user

	mu     sync.Mutex
	byUser map[uuid.UUID]int // guarded by mu
}

// enter counts one more client of a user until leave is called. It returns the fault RateLimited if there are too many.
func (c *crowd) enter(user uuid.UUID) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byUser[user] >= c.most {
		return nil, fault.New(fault.RateLimited, "You have %d connections to this server, which is the most for one user", c.most).
			WithDetail("End some of them: each coder ssh, coder port-forward and editor holds one.")
	}
	c.byUser[user]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.byUser[user]--; c.byUser[user] == 0 {
			delete(c.byUser, user)
		}
	}, nil
}
