// Package slowlink connects two network namespaces in user space, by a pair of TUN devices with delay, loss, a rate and
// cuts. It is for tests and measurements, requires root, and works on Linux only. It exists because many machines lack
// the kernel module of netem. It does not interpret what travels on the wire.
package slowlink

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultMTU = 1500
	// queue is how many packets may be on the wire in one direction; the wire drops more.
	queue = 20000
	// backlog is how many packets the kernel keeps for a wire that falls behind.
	backlog = 2000
	// maxPacket is how many bytes a TUN device may deliver at once.
	maxPacket = 64 << 10
)

// End is one end of a wire.
type End struct {
	Namespace string // as in "ip netns"
	Device    string // to be created there
	Address   string // of the device, with its prefix length
}

// Options configure a wire. The zero value makes a fast one.
type Options struct {
	Delay time.Duration // of a packet, one way
	Loss  float64       // probability that a packet is lost
	MTU   int           // 0 means 1500
	Rate  float64       // bytes per second, of each direction; 0 means no limit
	Queue time.Duration // how long packets may wait for the rate; the wire drops what would wait longer
}

// Link is a wire between two ends. Close it.
type Link struct {
	cut    atomic.Bool
	full   atomic.Int64
	ends   [2]*os.File
	pumps  sync.WaitGroup
	closed sync.Once
}

// Join creates a wire. Both namespaces must exist.
func Join(a, b End, opts Options) (*Link, error) {
	if opts.MTU == 0 {
		opts.MTU = defaultMTU
	}
	l := &Link{}
	for i, end := range []End{a, b} {
		tun, err := openTUN(end.Namespace, end.Device)
		if err == nil {
			l.ends[i] = tun
			err = configure(end, opts.MTU)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("join %s and %s: %w", a.Namespace, b.Namespace, err), l.Close())
		}
	}
	l.pump(l.ends[0], l.ends[1], opts)
	l.pump(l.ends[1], l.ends[0], opts)
	return l, nil
}

// Cut drops every packet from now on, or lets packets pass again.
func (l *Link) Cut(cut bool) { l.cut.Store(cut) }

// Dropped returns how many packets did not fit the queues of both directions.
func (l *Link) Dropped() int64 { return l.full.Load() }

// Close removes the wire and its devices.
func (l *Link) Close() error {
	var err error
	l.closed.Do(func() {
		for _, end := range l.ends {
			if end != nil {
				err = errors.Join(err, end.Close())
			}
		}
		l.pumps.Wait()
	})
	return err
}

// packet is on the wire until its time has come.
type packet struct {
	due   time.Time
	bytes []byte
}

// pump carries packets one way until the devices are closed.
func (l *Link) pump(from, to *os.File, opts Options) {
	wire := make(chan packet, queue)
	l.pumps.Go(func() {
		for p := range wire {
			time.Sleep(time.Until(p.due)) // this is the wire's length
			if _, err := to.Write(p.bytes); errors.Is(err, os.ErrClosed) {
				for range wire { // the other half notices on its own
				}
				return
			}
		}
	})
	l.pumps.Go(func() {
		defer close(wire)
		buf := make([]byte, maxPacket)
		var free time.Time // when the last packet in the queue has left
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if l.cut.Load() || opts.Loss > 0 && rand.Float64() < opts.Loss {
				continue
			}
			at := time.Now()
			if opts.Rate > 0 {
				if free.Sub(at) > opts.Queue {
					l.full.Add(1)
					continue
				}
				if free.Before(at) {
					free = at
				}
				free = free.Add(time.Duration(float64(n) / opts.Rate * float64(time.Second)))
				at = free
			}
			select {
			case wire <- packet{at.Add(opts.Delay), append([]byte(nil), buf[:n]...)}:
			default:
			}
		}
	})
}

func configure(end End, mtu int) error {
	for _, args := range [][]string{
		{"addr", "add", end.Address, "dev", end.Device},
		{"link", "set", end.Device, "mtu", strconv.Itoa(mtu), "txqueuelen", strconv.Itoa(backlog), "up"},
	} {
		if out, err := exec.Command("ip", append([]string{"-n", end.Namespace}, args...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}
