package sshmux_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/sshmux"
)

// TestWriteTo checks that received data can be forwarded without a copy, and that it is credited so that all of it arrives.
func TestWriteTo(t *testing.T) {
	t.Parallel()
	client, server := ends(t)
	ch, err := client.Open("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	far, err := (<-server.Channels()).Accept()
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<21) // more than two windows
	go func() {
		io.Copy(far, bytes.NewReader(data))
		io.WriteString(far.Stderr(), "that is all")
		far.CloseWrite()
	}()
	var out, errs bytes.Buffer
	if n, err := ch.WriteTo(&out); n != int64(len(data)) || err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("got %d bytes, %v; want %d", n, err, len(data))
	}
	if _, err := io.Copy(&errs, ch.Stderr()); err != nil || errs.String() != "that is all" {
		t.Errorf("stderr: got %q, %v", errs.String(), err)
	}
}

// TestSlowReader checks that a channel whose data is not read neither blocks the other channels nor exceeds the memory bound.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		client, server := pairOver(t, near, far, sshmux.Options{})
		stuck, _, err := client.OpenChannel("session", nil)
		if err != nil {
			t.Fatal(err)
		}
		left := make(chan int, 1)
		go func() {
			n, _ := stuck.Write(make([]byte, 2*sshmux.MaxWindow))
			left <- n
		}()
		<-server.Channels() // without reading from it
		go serve(server)
		synctest.Wait() // until the write can't go on
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		s.Stdin = bytes.NewReader([]byte("hello"))
		if got, err := s.Output("cat"); err != nil || string(got) != "hello" {
			t.Errorf("beside a channel that is stuck: got %q, %v", got, err)
		}
		stuck.Close()
		if n := <-left; n != sshmux.FirstWindow {
			t.Errorf("written to a channel without a reader: %d bytes, want %d", n, sshmux.FirstWindow)
		}
	})
}

// TestReadInPieces checks that a read takes what has arrived, in order, across the other end's writes.
func TestReadInPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		client, server := pairOver(t, near, far, sshmux.Options{})
		channel, _, err := client.OpenChannel("session", nil)
		if err != nil {
			t.Fatal(err)
		}
		request := <-server.Channels()
		sender, err := request.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for name, way := range map[string]struct {
			to   io.Writer
			from io.Reader
		}{"data": {sender, channel}, "errors": {sender.Stderr(), channel.Stderr()}} {
			for _, text := range []string{"ab", "cd", "ef"} {
				if _, err := io.WriteString(way.to, text); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait() // until all three are there
			buf := make([]byte, 5)
			for _, want := range []string{"abcde", "f"} {
				if n, err := way.from.Read(buf); err != nil || n != len(want) || string(buf[:n]) != want {
					t.Fatalf("%s: got %d bytes of %q, %v, want %q", name, n, buf, err, want)
				}
			}
		}
	})
}

// TestLongWrite checks that a write that is not a whole number of frames arrives.
func TestLongWrite(t *testing.T) {
	t.Parallel()
	client, server := pair(t, sshmux.Options{})
	go serve(server)
	for _, n := range []int{1, sshmux.MaxData - 1, sshmux.MaxData, sshmux.MaxData + 1, 3*sshmux.MaxData + 7} {
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		in, err := s.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		s.Stdout = &got
		if err := s.Start("cat"); err != nil {
			t.Fatal(err)
		}
		data := bytes.Repeat([]byte("0123456"), n)[:n]
		if wrote, err := in.Write(data); wrote != n || err != nil {
			t.Errorf("a write of %d bytes: got %d, %v", n, wrote, err)
		}
		in.Close()
		if err := s.Wait(); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("of %d bytes, %d came back: %v", n, got.Len(), err)
		}
	}
}

// TestWindowGrows checks how far a sender may be ahead of a reader: by FirstWindow, and by MaxWindow once the reader has
// shown that it is fast. Credit comes in quarters of FirstWindow.
func TestWindowGrows(t *testing.T) {
	t.Parallel()
	const fast = 256 << 10 // bytes
	for _, tc := range []struct {
		name    string
		pause   time.Duration // before each read
		reads   []int         // bytes
		written int
	}{
		{"a fast reader", 0, []int{fast}, fast + sshmux.MaxWindow},
		{"a fast reader that stops early", 0, []int{fast - 1}, sshmux.FirstWindow},
		{"a slow reader", time.Minute, []int{fast, fast}, 2*fast + sshmux.FirstWindow},
		{"a slow reader that stops early", time.Minute, []int{fast, fast - 1}, sshmux.FirstWindow},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				client, server := pairOver(t, near, far, sshmux.Options{})
				channel, _, err := client.OpenChannel("session", nil)
				if err != nil {
					t.Fatal(err)
				}
				written := make(chan int, 1)
				go func() {
					n, _ := channel.Write(make([]byte, 2*sshmux.MaxWindow))
					written <- n
				}()
				request := <-server.Channels()
				reader, err := request.Accept()
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range tc.reads {
					time.Sleep(tc.pause)
					if _, err := io.ReadFull(reader, make([]byte, n)); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait() // until the sender has used up its window
				channel.Close()
				if n := <-written; n != tc.written {
					t.Errorf("the sender wrote %d bytes, want %d", n, tc.written)
				}
			})
		})
	}
}

func BenchmarkDownload(b *testing.B) {
	client, server := pair(b, sshmux.Options{})
	ch, _, err := client.OpenChannel("session", nil)
	if err != nil {
		b.Fatal(err)
	}
	far, err := (<-server.Channels()).Accept()
	if err != nil {
		b.Fatal(err)
	}
	go io.Copy(io.Discard, ch)
	buf := make([]byte, 128<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := far.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}
