package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// subnets are the networks of this process. A listener is open for each until the process ends: the addresses of a wire may outlive its test.
var subnets struct {
	sync.Mutex
	held []net.Listener
}

// subnet returns the first three numbers of an IPv4 network that no other test of this machine has, for a wire to this process's own network
// namespace. It is one of those that RFC 2544 sets aside for tests.
func subnet() string {
	subnets.Lock()
	defer subnets.Unlock()
	for range 10_000 {
		n := rand.IntN(2 << 8)
		l, err := net.Listen("unix", fmt.Sprintf("@codermesh-test-subnet-%d", n)) // fails if another test has it
		if err == nil {
			subnets.held = append(subnets.held, l)
			return fmt.Sprintf("198.%d.%d.", 18+n>>8, n&0xff)
		}
	}
	panic("all networks for tests are in use")
}
