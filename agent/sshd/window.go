package sshd

import (
	"fmt"
	"sync"
	"time"
	"unsafe"

	gossh "golang.org/x/crypto/ssh"
)

// The SSH library gives the other end 2 MiB of window per channel, for ever: 168 Mbit/s at a round trip of 100 ms, whatever the
// path could carry. It has no setting for that, so this file reaches into it, in one place: it credits a channel with bytes that
// were never received, by the method with which the library itself credits those that were read. From then on the library
// credits every read at once, since it finds the window larger than it knows: that halves what a short path carries, so only those
// that the client found long have such channels. A test holds that this works with the version in go.mod; a
// version that lacks the method does not link.
const (
	firstWindow = 2 << 20 // the library's, in bytes
	maxWindow   = 8 << 20 // what a window grows to: 670 Mbit/s at 100 ms
	// growAfter is how many bytes must be read within growTime for a window to grow: no slow reader gets more.
	growAfter = 256 << 10
	growTime  = 3 * time.Second
	// growth is how many bytes all windows of a server together may grow above firstWindow.
	growth = 64 << 20
)

//go:linkname adjustWindow golang.org/x/crypto/ssh.(*channel).adjustWindow
func adjustWindow(channel unsafe.Pointer, bytes uint32) error

// channelType is what the method is called on.
const channelType = "*ssh.channel"

// checkChannel panics unless a channel is what adjustWindow takes: memory would be overwritten otherwise. The version of the
// library is fixed in go.mod, so a test finds it out.
func checkChannel(channel gossh.Channel) {
	if got := fmt.Sprintf("%T", channel); got != channelType {
		panic("sshd: a channel of golang.org/x/crypto/ssh is a " + got + ", not a " + channelType + ": the window cannot be widened with this version")
	}
}

// widen credits a channel of the library's with more bytes.
func widen(channel gossh.Channel, bytes uint32) error {
	return adjustWindow((*[2]unsafe.Pointer)(unsafe.Pointer(&channel))[1], bytes) // the value behind the interface is a pointer
}

// wideChannel is a channel whose window grows while its reader keeps up. Reads come from one goroutine.
type wideChannel struct {
	gossh.Channel
	server *Server
	window int
	since  int       // bytes read since the window grew
	from   time.Time // when that was
	once   sync.Once
}

// wide wraps a channel of the SSH library's.
func (s *Server) wide(channel gossh.Channel) *wideChannel {
	checkChannel(channel)
	return &wideChannel{Channel: channel, server: s, window: firstWindow, from: time.Now()}
}

func (w *wideChannel) Read(b []byte) (int, error) {
	n, err := w.Channel.Read(b)
	if w.since += n; w.since >= growAfter && w.window < maxWindow {
		if time.Since(w.from) < growTime && w.server.takeGrowth(maxWindow-firstWindow) {
			if widen(w.Channel, maxWindow-firstWindow) != nil {
				w.server.giveGrowth(maxWindow - firstWindow) // the channel is closed
			} else {
				w.window = maxWindow
			}
		}
		w.since, w.from = 0, time.Now()
	}
	return n, err
}

// release gives back what the window took. The channel must not be read any more.
func (w *wideChannel) release() {
	w.once.Do(func() { w.server.giveGrowth(w.window - firstWindow) })
}

func (s *Server) takeGrowth(bytes int) bool {
	if s.grown.Add(int64(bytes)) > growth {
		s.grown.Add(-int64(bytes))
		return false
	}
	return true
}

func (s *Server) giveGrowth(bytes int) { s.grown.Add(-int64(bytes)) }
