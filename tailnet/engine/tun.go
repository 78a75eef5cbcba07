package engine

import (
	"os"

	"github.com/tailscale/wireguard-go/conn"
	"github.com/tailscale/wireguard-go/tun"

	"github.com/codermesh/codermesh/v2/tailnet/engine/ipstack"
)

// tunDevice is the link as WireGuard sees it. One goroutine reads from it, and one per peer writes to it.
type tunDevice struct {
	*ipstack.Link
	going  *gauge // packets that WireGuard has read and not sent yet
	coming *gauge // packets that WireGuard has received and not written yet
	events chan tun.Event
	done   chan struct{}
}

func newTUN(l *ipstack.Link) *tunDevice {
	return &tunDevice{
		Link: l, going: newGauge(), coming: newGauge(), events: make(chan tun.Event, 1), done: make(chan struct{}),
	}
}

var _ tun.Device = (*tunDevice)(nil)

func (t *tunDevice) File() *os.File           { return nil }
func (t *tunDevice) MTU() (int, error)        { return ipstack.MTU, nil }
func (t *tunDevice) Name() (string, error)    { return "mesh", nil }
func (t *tunDevice) Events() <-chan tun.Event { return t.events }

func (t *tunDevice) BatchSize() int {
	if ipstack.Batched() {
		return conn.IdealBatchSize
	}
	return 1
}

func (t *tunDevice) Close() error {
	t.Link.Close()
	close(t.done)
	close(t.events) // the device calls Close once
	return nil
}

func (t *tunDevice) Write(bufs [][]byte, offset int) (int, error) {
	n, err := t.Link.Write(bufs, offset)
	t.coming.leave(len(bufs))
	return n, err
}

// Read blocks while too many packets are inside WireGuard.
func (t *tunDevice) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	t.going.wait(t.done)
	count, err := t.Link.Read(bufs, sizes, offset)
	t.going.enter(count)
	return count, err
}
