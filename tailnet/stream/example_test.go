package stream_test

import (
	"fmt"
	"io"
	"log"
	"net/netip"
	"sync"

	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

// Two ends in memory exchange data. A goroutine per end carries its packets to the other end, as WireGuard does between nodes.
func Example() {
	laptop, workspace := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	end := func(accept func(netip.Addr, uint16, *stream.Conn) func()) *stream.Mux {
		return stream.New(stream.Options{
			Admit:  func(_ netip.Addr, port uint16) bool { return port == 7 },
			Accept: accept,
			Header: func([]byte, netip.Addr) int { return 0 }, // no IP header in memory
			Finish: func([]byte) {},
		})
	}
	near := end(func(netip.Addr, uint16, *stream.Conn) func() { return nil })
	far := end(func(_ netip.Addr, _ uint16, conn *stream.Conn) func() {
		return func() {
			question, _ := io.ReadAll(conn)
			fmt.Fprintf(conn, "you said %q", question)
			conn.Close()
		}
	})
	near.Add(workspace, stream.Group{})
	far.Add(laptop, stream.Group{})
	var carriers sync.WaitGroup
	done := make(chan struct{})
	carry := func(from, to *stream.Mux, sender netip.Addr) {
		bufs, sizes := make([][]byte, 16), make([]int, 16)
		for i := range bufs {
			bufs[i] = make([]byte, 2048)
		}
		for {
			select {
			case <-from.Ready():
			case <-done:
				return
			}
			for n := from.Fill(bufs, sizes, 0); n > 0; n = from.Fill(bufs, sizes, 0) {
				for i, size := range sizes[:n] {
					to.Receive(sender, [][]byte{bufs[i][:size]})
				}
			}
		}
	}
	carriers.Go(func() { carry(near, far, laptop) })
	carriers.Go(func() { carry(far, near, workspace) })

	conn, err := near.Dial(workspace, 7) // returns at once: the first packet opens the stream
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(conn, "hello")
	conn.CloseWrite()
	answer, err := io.ReadAll(conn)
	fmt.Println(string(answer), err)

	conn.Close()
	close(done)
	carriers.Wait()
	near.Close()
	far.Close()
	// Output: you said "hello" <nil>
}
