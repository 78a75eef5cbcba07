package sftpext_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/codermesh/codermesh/v2/agent/sshd/sftpext"
)

// wire is a client that has sent everything and keeps what it receives.
type wire struct {
	io.Reader
	bytes.Buffer
}

func (w *wire) Read(b []byte) (int, error) { return w.Reader.Read(b) }

// FuzzFilter gives a filter a client's bytes and a server's answers. The server answers each request, in pieces, with a type and a body
// from answers.
func FuzzFilter(f *testing.F) {
	copyData := packet(extended, uint32(1), "copy-data", "a", uint64(0), uint64(0), "b", uint64(0))
	f.Add(append(packet(initialize, uint32(3)), copyData...), []byte{version, 0, data, 4, statusType, 4})
	f.Add(append(packet(open, uint32(2), "file", uint32(1), uint32(0)), copyData...), []byte{handle, 9, statusType, 12})
	f.Add(packet(extended, uint32(1), "expand-path@openssh.com", "~/x"), []byte{name, 0})
	f.Add(packet(extended, uint32(1), "limits@openssh.com"), []byte{})
	f.Add(packet(closeFile, uint32(1)), []byte{})
	f.Fuzz(func(t *testing.T, requests, answers []byte) {
		client := &wire{Reader: bytes.NewReader(requests)}
		filter := sftpext.New(client, sftpext.Options{Directory: "/", Home: func(account string) (string, error) {
			if account != "" {
				return "", errors.New("unknown")
			}
			return "/home", nil
		}})
		defer filter.Close()
		for rounds := 0; ; rounds++ {
			var head [5]byte
			if _, err := io.ReadFull(filter, head[:]); err != nil {
				break
			}
			length := binary.BigEndian.Uint32(head[:])
			if length == 0 || length > sftpext.MaxPacket {
				t.Fatalf("the server gets a packet of %d bytes", length)
			}
			body := make([]byte, length-1)
			if _, err := io.ReadFull(filter, body); err != nil {
				break
			}
			if rounds > 1000 {
				break // a server that always has data to copy
			}
			kind, size := byte(statusType), 0
			if len(answers) > 1 {
				kind, size = answers[0], int(answers[1])
				answers = answers[2:]
			}
			reply := append([]byte{0, 0, 0, 0, kind}, body[:min(4, len(body))]...)
			reply = append(reply, answers[:min(size, len(answers))]...)
			binary.BigEndian.PutUint32(reply, uint32(len(reply)-4))
			cut := min(size%11, len(reply))
			for _, piece := range [][]byte{reply[:cut], reply[cut:]} {
				if n, err := filter.Write(piece); err != nil || n != len(piece) {
					t.Fatalf("write: %d of %d bytes, %v", n, len(piece), err)
				}
			}
		}
		// What the client receives are whole packets.
		for got := client.Bytes(); len(got) > 0; {
			if len(got) < 5 || int(binary.BigEndian.Uint32(got)) > len(got)-4 {
				t.Fatalf("the client receives %q", got)
			}
			got = got[4+binary.BigEndian.Uint32(got):]
		}
	})
}
