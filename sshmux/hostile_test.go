package sshmux_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/sshmux"
)

func frame(kind byte, channel uint32, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(5+len(body)))
	b = append(b, kind)
	return append(binary.BigEndian.AppendUint32(b, channel), body...)
}

const preamble = "SMX\x02"

// session returns a frame that opens a channel with the largest window.
func session(channel uint32) []byte {
	return frame(1, channel, append([]byte{0, 1, 0, 0, 0, 0, 7}, "session"...)...)
}

// TestHostileClient checks that a client that violates the protocol loses its connection.
func TestHostileClient(t *testing.T) {
	t.Parallel()
	open := session(1)
	flood := bytes.Clone(open)
	for range sshmux.FirstWindow/sshmux.MaxData + 1 {
		flood = append(flood, frame(4, 1, make([]byte, sshmux.MaxData)...)...)
	}
	for what, data := range map[string][]byte{
		"more than the window":          flood,
		"a frame without an end":        {0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 1},
		"a frame without a head":        {0, 0, 0, 1, 1, 0, 0, 0, 1},
		"a channel of the server":       session(1<<31 | 1),
		"a channel twice":               append(bytes.Clone(open), open...),
		"a channel with endless room":   frame(1, 1, append([]byte{0, 1, 0, 0, 1, 0, 7}, "session"...)...),
		"a flag that is not one":        frame(1, 1, append([]byte{2, 0, 0, 0, 0, 0, 7}, "session"...)...),
		"a type that never ends":        frame(1, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 'x'),
		"an acceptance unasked for":     append(bytes.Clone(open), frame(2, 1)...),
		"an answer to no question":      frame(12, 0, 0, 0, 0, 1, 1),
		"an answer to no request":       append(bytes.Clone(open), frame(10, 1, 1)...),
		"a window that is half a word":  append(bytes.Clone(open), frame(6, 1, 0, 0)...),
		"endless room":                  append(bytes.Clone(open), frame(6, 1, 0x7f, 0xff, 0xff, 0xff)...),
		"room of 2 GiB":                 append(bytes.Clone(open), frame(6, 1, 0x80, 0, 0, 0)...),
		"room of 4 GiB":                 append(bytes.Clone(open), frame(6, 1, 0xff, 0xff, 0xff, 0xff)...),
		"room that wraps around":        append(append(bytes.Clone(open), frame(6, 1, 1, 0, 0, 0)...), frame(6, 1, 0xff, 0xff, 0xff, 0xff)...),
		"an unknown kind":               append(bytes.Clone(open), frame(77, 1)...),
		"a global request on a channel": frame(11, 1, append([]byte{0, 0, 0, 1, 0, 1}, 'x')...),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			near, far := stream(t)
			defer near.Close()
			server := sshmux.New(far, sshmux.Options{Server: true})
			go func() {
				for range server.Channels() { // their data is not read
				}
			}()
			go near.Write(append([]byte(preamble), data...))
			over := make(chan error, 1)
			go func() { over <- server.Wait() }()
			select {
			case err := <-over:
				if err == nil || errors.Is(err, io.EOF) {
					t.Errorf("got %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Error("the connection is still there")
				server.Close()
				<-over
			}
		})
	}
}

// FuzzConn feeds a server with arbitrary input from a client.
func FuzzConn(f *testing.F) {
	f.Add(session(1))
	f.Add(append(session(1), frame(9, 1, append([]byte{1, 0, 4}, "exec\x00\x00\x00\x03cat"...)...)...))
	f.Add(append(session(1), frame(9, 1, append([]byte{1, 0, 4}, "fine"...)...)...))
	f.Add(frame(11, 0, append([]byte{0, 0, 0, 1, 0, 9}, "keepalive"...)...))
	f.Fuzz(func(_ *testing.T, data []byte) {
		near, far := net.Pipe()
		server := sshmux.New(far, sshmux.Options{Server: true})
		go serve(server)
		go io.Copy(io.Discard, near)
		near.Write(append([]byte(preamble), data...))
		near.Close()
		server.Wait()
	})
}
