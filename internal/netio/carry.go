package netio

import (
	"context"
	"net"
	"sync"
	"time"
)

// DatagramIdle is how long CarryDatagrams waits for the next one.
const DatagramIdle = 2 * time.Minute

// maxDatagram is the longest that UDP allows, in bytes.
const maxDatagram = 64 << 10

var datagrams = pool(maxDatagram)

// Resetter is a connection that Abort ends with a reset, which its peer does not take for an end of the data.
type Resetter interface {
	net.Conn
	Abort()
}

// Carry joins an accepted connection and the one that was dialed for it until both directions have ended, and owns
// both. It blocks. The accepted one is reset if a direction breaks or ctx ends.
func Carry(ctx context.Context, accepted Resetter, dialed net.Conn) {
	broken := sync.OnceFunc(func() {
		accepted.Abort()
		dialed.Close()
	})
	defer context.AfterFunc(ctx, broken)()
	direction := func(dst, src net.Conn) {
		if _, err := Copy(dst, src); err != nil || CloseWrite(dst) != nil {
			broken()
		}
	}
	var back sync.WaitGroup
	back.Go(func() { direction(accepted, dialed) })
	direction(dialed, accepted)
	back.Wait()
	accepted.Close()
	dialed.Close()
}

// CarryDatagrams joins two flows until one ends, ctx ends, or none has carried a datagram for DatagramIdle, and owns
// both. It blocks.
func CarryDatagrams(ctx context.Context, a, b net.Conn) {
	ended := sync.OnceFunc(func() {
		a.Close()
		b.Close()
	})
	defer ended()
	defer context.AfterFunc(ctx, ended)()
	idle := time.AfterFunc(DatagramIdle, ended)
	defer idle.Stop()
	direction := func(dst, src net.Conn) {
		defer ended()
		buf := datagrams.Get().(*[]byte)
		defer datagrams.Put(buf)
		for {
			n, err := src.Read(*buf)
			if err != nil {
				return
			}
			idle.Reset(DatagramIdle)
			if _, err := dst.Write((*buf)[:n]); err != nil {
				return
			}
		}
	}
	var back sync.WaitGroup
	back.Go(func() { direction(a, b) })
	direction(b, a)
	back.Wait()
}
