package stream_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"golang.org/x/net/nettest"

	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

// download makes b send size bytes to a, and returns how long it takes until a has all of them.
func download(t *testing.T, ab, ba *path, size int) time.Duration {
	t.Helper()
	want := sha256.New()
	n := newNetwork(t, ab, ba, nil, func(_ uint16, c *stream.Conn) func() {
		return func() {
			defer c.Close()
			buf := make([]byte, 32<<10)
			for left := size; left > 0; {
				chunk := buf[:min(left, len(buf))]
				for i := range chunk {
					chunk[i] = byte(left + i*7)
				}
				want.Write(chunk)
				k, err := c.Write(chunk)
				if err != nil {
					t.Error(err)
					return
				}
				left -= k
			}
		}
	})
	defer n.close()
	begin := time.Now()
	c, err := n.a.Dial(addrB, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := sha256.New()
	k, err := io.Copy(got, c)
	if err != nil || int(k) != size {
		t.Fatalf("got %d bytes of %d: %v", k, size, err)
	}
	took := time.Since(begin)
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Fatal("the received bytes differ from the sent ones")
	}
	return took
}

// pair opens a stream from a to b over a network.
func pair(t *testing.T, p *path, tune ...func(*stream.Options)) (n *network, a, b *stream.Conn) {
	t.Helper()
	opened := make(chan *stream.Conn, 1)
	n = newNetwork(t, p, &path{delay: p.delay, loss: p.loss}, nil, func(_ uint16, c *stream.Conn) func() {
		return func() { opened <- c }
	}, tune...)
	a, err := n.a.Dial(addrB, 1)
	if err != nil {
		t.Fatal(err)
	}
	return n, a, <-opened
}

// TestConformance runs the tests that every net.Conn should pass.
func TestConformance(t *testing.T) {
	nettest.TestConn(t, func() (a, b net.Conn, stop func(), err error) {
		n, x, y := pair(t, &path{})
		return x, y, func() { x.Close(); y.Close(); n.close() }, nil
	})
}

func readAll(t *testing.T, c *stream.Conn, want string) {
	t.Helper()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// TestLifeOfAStream checks that each end sees what the other does.
func TestLifeOfAStream(t *testing.T) {
	p := func() *path { return &path{delay: 20 * time.Millisecond, loss: 0.2} }
	run := func(name string, f func(t *testing.T, a, b *stream.Conn)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, a, b := pair(t, p())
				defer n.close()
				f(t, a, b)
			})
		})
	}
	run("half-closed", func(t *testing.T, a, b *stream.Conn) {
		a.Write([]byte("question"))
		a.CloseWrite()
		readAll(t, b, "question")
		b.Write([]byte("answer"))
		b.Close()
		readAll(t, a, "answer")
		a.Close()
		ends(t, a)
		ends(t, b)
	})
	run("closed with bytes under way", func(t *testing.T, a, b *stream.Conn) {
		a.Write(bytes.Repeat([]byte("x"), 200_000))
		a.Close()
		readAll(t, b, string(bytes.Repeat([]byte("x"), 200_000)))
		b.Close()
		ends(t, a)
		ends(t, b)
	})
	run("the reader leaves", func(t *testing.T, a, b *stream.Conn) {
		b.Write([]byte("last words"))
		b.Close()
		_, err := io.Copy(a, forever{})
		if !errors.Is(err, syscall.EPIPE) {
			t.Fatalf("write to a closed end: %v", err)
		}
		readAll(t, a, "last words")
		a.Close()
		ends(t, a)
		ends(t, b)
	})
	run("aborted", func(t *testing.T, a, b *stream.Conn) {
		a.Abort()
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("read of an aborted stream: %v", err)
		}
		if _, err := b.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("write to an aborted stream: %v", err)
		}
	})
	run("arrived before it was aborted", func(t *testing.T, a, b *stream.Conn) {
		b.Write([]byte("here"))
		holds(t, a, 4)
		b.Abort()
		ends(t, a)
		buf := make([]byte, 10)
		if k, err := a.Read(buf); k != 4 || err != nil {
			t.Fatalf("read %d bytes, %v", k, err)
		}
		if _, err := a.Read(buf); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("read after the end: %v", err)
		}
	})
}

// forever is a reader that never ends.
type forever struct{}

func (forever) Read(b []byte) (int, error) { return len(b), nil }

// ends waits, in virtual time, until a stream is over.
func ends(t *testing.T, c *stream.Conn) {
	t.Helper()
	testwait.Until(t, "the stream is over", func() error { return testwait.Unless(c.Over(), "%d bytes are unread", c.Buffered()) })
}

// holds waits, in virtual time, until n unread bytes have arrived at a stream.
func holds(t *testing.T, c *stream.Conn, n int) {
	t.Helper()
	testwait.Until(t, "the bytes arrive", func() error { return testwait.Equal(c.Buffered(), n) })
}

// TestRefused dials a port that nothing serves, a port that the peer must not reach, and dials on a closed mux.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &path{delay: 20 * time.Millisecond}
		n := newNetwork(t, p, &path{delay: p.delay}, nil, func(uint16, *stream.Conn) func() { return nil })
		defer n.close()
		c, err := n.a.Dial(addrB, 5)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("a port that nothing serves: %v", err)
		}
		if c, err = n.a.Dial(addrB, forbidden); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a forbidden port answers: %v", err)
		}
		n.a.Remove(addrB)
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, stream.ErrClosed) {
			t.Fatalf("read after the peer was removed: %v", err)
		}
		n.a.Close()
		if _, err := n.a.Dial(addrB, 1); !errors.Is(err, stream.ErrClosed) {
			t.Fatalf("dial on a closed mux: %v", err)
		}
	})
}

// TestSimulatedCut checks that data in flight during an outage of the path arrives soon after the path is back.
func TestSimulatedCut(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, 30 * time.Second, 20 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &path{delay: 50 * time.Millisecond}
				n, a, b := pair(t, p)
				defer n.close()
				go io.Copy(a, forever{})
				var last time.Time
				var mu sync.Mutex
				go func() {
					buf := make([]byte, 64<<10)
					for {
						if _, err := b.Read(buf); err != nil {
							return
						}
						mu.Lock()
						last = time.Now()
						mu.Unlock()
					}
				}()
				time.Sleep(2 * time.Second)
				n.cut(true)
				time.Sleep(outage)
				sent := n.ab.packets.Load()
				n.cut(false)
				back := time.Now()
				for {
					time.Sleep(5 * time.Millisecond)
					mu.Lock()
					heard := last.After(back)
					mu.Unlock()
					if heard {
						break
					}
					if time.Since(back) > time.Minute {
						t.Fatal("the stream stays silent")
					}
				}
				t.Logf("silent for another %v; %d packets sent before", time.Since(back).Round(time.Millisecond), sent)
				if since := time.Since(back); outage < time.Minute && since > 500*time.Millisecond || since > 2*time.Second {
					t.Errorf("silent for %v on a path of 100 ms", since)
				}
				a.Abort()
			})
		})
	}
}

// TestBack checks that what a slow writer lost during an outage arrives one round trip after the reader's node was told that the path may be back,
// although the reader has nothing to send and the writer's timer never fires, because it keeps sending.
func TestBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay, count = 50 * time.Millisecond, 400
		n, reader, writer := pair(t, &path{delay: delay})
		defer n.close()
		go func() {
			for i := range count {
				if _, err := writer.Write([]byte{byte(i)}); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			writer.CloseWrite()
		}()
		time.Sleep(2 * time.Second)
		n.cut(true)
		time.Sleep(30*time.Second + 30*time.Millisecond)
		n.cut(false)
		n.a.Retry()
		buf := make([]byte, count)
		reader.SetReadDeadline(time.Now().Add(2*delay + 5*time.Millisecond))
		got, err := io.ReadAtLeast(reader, buf, 2*10+30*10)
		if err != nil {
			t.Fatalf("after a round trip, %d bytes of some 320 are there: %v", got, err)
		}
		reader.SetReadDeadline(time.Time{})
		rest, err := io.ReadAll(reader)
		if err != nil || got+len(rest) != count {
			t.Fatalf("%d bytes of %d arrived: %v", got+len(rest), count, err)
		}
		for i, b := range append(buf[:got], rest...) {
			if b != byte(i) {
				t.Fatalf("byte %d is %d", i, b)
			}
		}
	})
}

// TestGivenUp checks that streams end when the peer is away for too long.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, _ := pair(t, &path{delay: 50 * time.Millisecond})
		defer n.close()
		n.cut(true)
		begin := time.Now()
		_, err := io.Copy(a, forever{})
		if err == nil || time.Since(begin) < 29*time.Minute || time.Since(begin) > 32*time.Minute {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
	})
}

// TestAbortedBeforeItStands checks that the other end does not keep a stream whose opener has aborted it.
func TestAbortedBeforeItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := make(chan *stream.Conn, 100)
		p := &path{delay: 20 * time.Millisecond, loss: 0.3}
		n := newNetwork(t, p, &path{delay: p.delay, loss: p.loss}, nil, func(_ uint16, c *stream.Conn) func() { return func() { opened <- c } })
		defer n.close()
		for range 100 {
			c, err := n.a.Dial(addrB, 1)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(15 * time.Millisecond)
			c.Abort()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		close(opened)
		for c := range opened {
			if !c.Over() {
				t.Fatalf("stream %d is still open", c.Number())
			}
		}
	})
}

// TestSimulatedBulkAfterSmall checks that what an end sends while it has little to say does not slow its next transfer: single bytes, and the window
// updates of an upload.
func TestSimulatedBulkAfterSmall(t *testing.T) {
	const size = 40 << 20
	synctest.Test(t, func(t *testing.T) {
		p := func() *path { return &path{delay: 100 * time.Millisecond, rate: 30e6, queue: 300 * time.Millisecond} }
		fresh := download(t, p(), p(), size)
		n := newNetwork(t, p(), p(), nil, func(_ uint16, c *stream.Conn) func() {
			return func() {
				defer c.Close()
				one := make([]byte, 1)
				for range 50 {
					io.ReadFull(c, one)
					c.Write(one)
				}
				io.CopyN(io.Discard, c, size)
				c.Write(make([]byte, size))
			}
		})
		defer n.close()
		c, err := n.a.Dial(addrB, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		one := make([]byte, 1)
		for range 50 {
			c.Write(one)
			if _, err := io.ReadFull(c, one); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, one); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := io.CopyN(io.Discard, c, size-1); err != nil {
			t.Fatal(err)
		}
		took := time.Since(begin)
		t.Logf("%v, and %v on a new connection", took, fresh)
		if took > fresh*3/2 {
			t.Errorf("took %v, and %v on a new connection", took, fresh)
		}
	})
}

// TestIdle checks that an idle stream costs one packet and its answer every five minutes, and detects when the peer is gone.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, &path{delay: 50 * time.Millisecond})
		defer n.close()
		time.Sleep(time.Minute)
		before := n.ab.packets.Load() + n.ba.packets.Load()
		time.Sleep(time.Hour)
		if sent := n.ab.packets.Load() + n.ba.packets.Load() - before; sent < 10 || sent > 60 {
			t.Errorf("%d packets in an idle hour", sent)
		}
		n.cut(true)
		begin := time.Now()
		if _, err := a.Read(make([]byte, 1)); err == nil || time.Since(begin) > 40*time.Minute {
			t.Fatalf("a peer that is gone: %v after %v", err, time.Since(begin))
		}
		if _, err := b.Read(make([]byte, 1)); err == nil {
			t.Fatal("the other end still waits")
		}
	})
}

// TestBegunAnew checks that streams end when one end restarts without its state, and that new streams work immediately.
func TestBegunAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, &path{delay: 50 * time.Millisecond})
		defer n.close()
		a.Write([]byte("before"))
		holds(t, b, 6)
		if err := a.Wait(t.Context()); err != nil { // until then its packets would open the stream again
			t.Fatal(err)
		}
		n.b.Remove(addrA)
		if _, err := b.Write([]byte("x")); !errors.Is(err, stream.ErrClosed) {
			t.Errorf("write to a removed peer: %v", err)
		}
		a.Write([]byte("unheard")) // a removed peer's packets create nothing
		time.Sleep(time.Second)
		if _, err := n.b.Dial(addrA, 1); !errors.Is(err, stream.ErrClosed) {
			t.Errorf("dial a removed peer: %v", err)
		}
		n.b.Add(addrA, stream.Group{})
		a.Write([]byte("more"))
		if _, err := a.Read(make([]byte, 1)); err == nil {
			t.Error("the stream continues")
		}
		c, err := n.a.Dial(addrB, 1)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := c.Wait(t.Context()); err != nil || time.Since(begin) > 200*time.Millisecond {
			t.Errorf("a new stream: %v after %v", err, time.Since(begin))
		}
	})
}

// TestFlowControl checks that a reader that does not read blocks its writer, while other streams continue.
func TestFlowControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := func(o *stream.Options) { o.RecvBuffer = 256 << 10 }
		n, a, b := pair(t, &path{delay: 10 * time.Millisecond}, small)
		defer n.close()
		a.SetWriteDeadline(time.Now().Add(10 * time.Second))
		sent, _ := io.Copy(a, forever{})
		if held := int64(b.Buffered()); held > 256<<10 || sent-held > 1<<20 {
			t.Errorf("the writer sent %d bytes; the reader's end holds %d", sent, held)
		}
		c, err := n.a.Dial(addrB, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, b)
		a.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if more, _ := io.Copy(a, forever{}); more < 10<<20 {
			t.Errorf("only %d bytes passed after the reader began to read", more)
		}
	})
}

// TestSimulatedMoved checks that a transfer continues when its packets take a shorter path, and that it adapts to that path's rate.
func TestSimulatedMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &path{delay: 100 * time.Millisecond, rate: 5e6, queue: 300 * time.Millisecond}
		n, a, b := pair(t, p)
		defer n.close()
		n.a.Moved(addrB, true)
		got := make(chan int64)
		go func() {
			k, _ := io.Copy(io.Discard, b)
			got <- k
		}()
		go func() {
			time.Sleep(3 * time.Second)
			p.mu.Lock()
			p.delay, p.rate = 5*time.Millisecond, 125e6
			p.mu.Unlock()
			n.a.Moved(addrB, false)
		}()
		const size = 60 << 20
		begin := time.Now()
		if _, err := io.CopyN(a, forever{}, size); err != nil {
			t.Fatal(err)
		}
		a.Close()
		if k := <-got; k != size {
			t.Fatalf("%d bytes arrived", k)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("60 MiB took %v; after 3 s the path carries 120 MB/s", took)
		}
	})
}

// TestManyStreams opens many streams at once, over a path that loses packets.
func TestManyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, &path{delay: 20 * time.Millisecond, loss: 0.02}, &path{delay: 20 * time.Millisecond, loss: 0.02}, nil, func(_ uint16, c *stream.Conn) func() {
			return func() {
				io.Copy(c, c)
				c.Close()
			}
		})
		defer n.close()
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				c, err := n.a.Dial(addrB, uint16(i+1000))
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				want := bytes.Repeat([]byte{byte(i)}, 20_000+i)
				go func() {
					c.Write(want)
					c.CloseWrite()
				}()
				if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
					t.Errorf("stream %d: %d bytes, %v", i, len(got), err)
				}
			})
		}
		wg.Wait()
	})
}

// TestSimulatedPaths transfers 40 MiB over simulated paths and logs how long it takes. Where queues are short, the search for the path's rate must
// not waste that rate on lost packets.
func TestSimulatedPaths(t *testing.T) {
	const size = 40 << 20
	for _, tc := range []struct {
		name string
		path *path
	}{
		{"100ms", &path{delay: 50 * time.Millisecond}},
		{"100ms, 500 Mbit/s", &path{delay: 50 * time.Millisecond, rate: 62.5e6, queue: 100 * time.Millisecond}},
		{"100ms, 500 Mbit/s, short queue", &path{delay: 50 * time.Millisecond, rate: 62.5e6, queue: 5 * time.Millisecond}},
		{"100ms, 0.2% lost", &path{delay: 50 * time.Millisecond, loss: 0.002}},
		{"100ms, 500 Mbit/s, 0.2% lost", &path{delay: 50 * time.Millisecond, loss: 0.002, rate: 62.5e6, queue: 100 * time.Millisecond}},
		{"100ms, 500 Mbit/s, 2% lost", &path{delay: 50 * time.Millisecond, loss: 0.02, rate: 62.5e6, queue: 100 * time.Millisecond}},
		{"20ms, 50 Mbit/s", &path{delay: 10 * time.Millisecond, rate: 6.25e6, queue: 100 * time.Millisecond}},
		{"1ms, 1 Gbit/s", &path{delay: 500 * time.Microsecond, rate: 125e6, queue: 5 * time.Millisecond}},
		{"200ms, 240 Mbit/s", &path{delay: 100 * time.Millisecond, rate: 30e6, queue: 300 * time.Millisecond}},
		{"200ms, 240 Mbit/s, TCP, 0.4% lost", &path{delay: 100 * time.Millisecond, rate: 30e6, queue: 300 * time.Millisecond, loss: 0.004, resend: 100 * time.Millisecond}},
		{"200ms, 240 Mbit/s, TCP, young", &path{delay: 100 * time.Millisecond, rate: 30e6, resend: 100 * time.Millisecond, young: 100 * time.Millisecond}},
		{"40ms, narrow", &path{delay: 20 * time.Millisecond, longest: 1200, rate: 62.5e6, queue: 100 * time.Millisecond}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := tc.path
				back := &path{delay: p.delay, loss: p.loss, resend: p.resend}
				took := download(t, back, p, size)
				t.Logf("%v: %.0f Mbit/s, %d packets, %d dropped, %.1f%% more bytes, longest wait %v, %d back", took.Round(time.Millisecond), size*8/took.Seconds()/1e6,
					p.packets.Load(), p.dropped.Load(), 100*(float64(p.bytes.Load())/size-1), time.Duration(p.waited.Load()), back.packets.Load())
				if p.young != 0 && took > 4*time.Second {
					t.Errorf("took %v: startup ended while the relay's connection was young", took)
				}
				if sent := p.bytes.Load(); sent > size*3/2 {
					t.Errorf("sent %d bytes to carry %d", sent, size)
				}
			})
		})
	}
}
