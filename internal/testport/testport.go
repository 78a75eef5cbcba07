// Package testport chooses ports for programs that a test starts and that cannot say which port the system gave them.
//
// A port that the system chose for a listener, which was closed since, may be any connection's next. The ports of this
// package are below those that the system chooses from, so only a program that asks for one by its number takes it.
// Tests of other packages, which run at the same time, do not: each port is reserved until the process of the test
// ends.
package testport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

const (
	first = 20000 // above what services of a machine use
	// defaultLow is the lowest port that Linux gives to connections, unless its administrator decides otherwise.
	defaultLow = 32768
)

var (
	mu       sync.Mutex
	reserved = map[int]net.Listener{} // by port; a nil one where the system has no abstract addresses
)

// Free returns a TCP port at which no program of this machine listens. It returns no port twice.
func Free() int { return Range(1) }

// Addr returns an address of the loopback interface with a port of Free.
func Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(Free())) }

// Range returns the first of n ports in a row, each as Free's. It panics if there are none.
func Range(n int) int {
	mu.Lock()
	defer mu.Unlock()
	last := low() - n
	for range 1000 {
		port := first + rand.IntN(last-first)
		taken := 0
		for taken < n && reserve(port+taken) {
			taken++
		}
		if taken == n {
			return port
		}
	}
	panic(fmt.Sprintf("no %d ports in a row are free between %d and %d", n, first, last+n))
}

// reserve keeps a port from other callers, of this process and of others, if no program listens at it.
func reserve(port int) bool {
	if _, ok := reserved[port]; ok {
		return false
	}
	var lock net.Listener
	if runtime.GOOS == "linux" {
		var err error
		if lock, err = net.Listen("unix", lockAddress(port)); err != nil {
			return false
		}
	}
	if !isFree(port) {
		if lock != nil {
			lock.Close()
		}
		return false
	}
	reserved[port] = lock
	return true
}

// lockAddress is an address without a file, which ends with the process. The dashboard's tests reserve ports by the
// same (site/e2e/server.ts). It is as long as an address can be: Node.js fills up those that are shorter.
func lockAddress(port int) string {
	const longest = 108 // bytes; sun_path in unix(7)
	address := "@codermesh-test-port-" + strconv.Itoa(port)
	return address + strings.Repeat("-", longest-len(address))
}

// low returns the lowest port that the system chooses.
func low() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return defaultLow
	}
	var lowest int
	if _, err := fmt.Sscan(string(text), &lowest); err != nil || lowest < first+1000 {
		return defaultLow
	}
	return lowest
}
