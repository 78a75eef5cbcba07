package sftpext_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/sftp"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/sshd/sftpext"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client speaks the protocol as plain packets.
type client struct {
	t    *testing.T
	conn net.Conn
	dir  string
	end  func() // as when the client is gone
}

// Packet types and status codes.
const (
	initialize, version, open, closeFile, read, write, realpath, stat = 1, 2, 3, 4, 5, 6, 16, 17
	statusType, handle, data, name, extended, extendedReply           = 101, 102, 103, 104, 200, 201

	ok, eof, noSuchFile, failure, badMessage = 0, 1, 2, 4, 5

	forReading, forWriting = 1, 2 | 8
)

func connect(t *testing.T) *client {
	t.Helper()
	near, far := net.Pipe()
	ended, served := make(chan struct{}), make(chan struct{})
	c := &client{t: t, conn: near, dir: t.TempDir(), end: func() { near.Close(); close(ended) }}
	filter := sftpext.New(far, sftpext.Options{Directory: c.dir, Ended: ended, Home: func(account string) (string, error) {
		if account != "" {
			return "", errors.New("unknown user " + account)
		}
		return c.dir, nil
	}})
	server, err := sftp.NewServer(filter, sftp.WithAllocator(), sftp.WithMaxTxPacket(sftpext.MaxData), sftp.WithServerWorkingDirectory(c.dir))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(served)
		_ = server.Serve()
		_ = server.Close()
		far.Close()
	}()
	t.Cleanup(func() {
		if near.Close(); !isClosed(ended) {
			close(ended)
		}
		<-served
	})
	c.send(initialize, uint32(3))
	if kind, _ := c.receive(); kind != version {
		t.Fatalf("got a packet of type %d, want the version", kind)
	}
	return c
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func packet(kind byte, fields ...any) []byte {
	b := []byte{0, 0, 0, 0, kind}
	for _, f := range fields {
		switch f := f.(type) {
		case uint32:
			b = binary.BigEndian.AppendUint32(b, f)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, f)
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
		}
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// send sends a packet of numbers and strings.
func (c *client) send(kind byte, fields ...any) {
	c.t.Helper()
	if _, err := c.conn.Write(packet(kind, fields...)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) receive() (kind byte, rest []byte) {
	c.t.Helper()
	var length [4]byte
	if _, err := io.ReadFull(c.conn, length[:]); err != nil {
		c.t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(c.conn, b); err != nil {
		c.t.Fatal(err)
	}
	return b[0], b[1:]
}

// status receives the answer to request id, which must be a status, and returns its code and message.
func (c *client) status(id uint32) (code uint32, message string) {
	c.t.Helper()
	kind, b := c.receive()
	if kind != statusType || binary.BigEndian.Uint32(b) != id {
		c.t.Fatalf("got packet %d %q, want the status of request %d", kind, b, id)
	}
	return binary.BigEndian.Uint32(b[4:]), string(b[12 : 12+binary.BigEndian.Uint32(b[8:])])
}

func (c *client) open(name string, flags uint32) string {
	c.t.Helper()
	c.send(open, uint32(1), name, flags, uint32(0))
	kind, b := c.receive()
	if kind != handle {
		c.t.Fatalf("open %s: %q", name, b)
	}
	return string(b[8:])
}

func (c *client) write(name string, content []byte) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), content, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) read(name string) []byte {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *client) copy(id uint32, from string, readAt, length uint64, to string, writeAt uint64) {
	c.t.Helper()
	c.send(extended, id, "copy-data", from, readAt, length, to, writeAt)
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func TestVersionAnnouncesExtensions(t *testing.T) {
	c := connect(t)
	c.send(initialize, uint32(3))
	_, b := c.receive()
	var got []string
	for b = b[4:]; len(b) > 0; {
		n := binary.BigEndian.Uint32(b)
		got, b = append(got, string(b[4:4+n])), b[4+n:]
	}
	want := []string{
		"hardlink@openssh.com", "1", "posix-rename@openssh.com", "1", "statvfs@openssh.com", "2",
		"copy-data", "1", "expand-path@openssh.com", "1", "limits@openssh.com", "1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("extensions (-want +got):\n%s", diff)
	}
}

func TestCopy(t *testing.T) {
	content := random(3*sftpext.MaxData + 17)
	for _, tt := range []struct {
		name                    string
		readAt, length, writeAt uint64
		from, before, want      []byte
		code                    uint32
	}{
		{name: "all", from: content, want: content},
		{name: "empty", from: nil, want: []byte{}},
		{name: "part", from: content, readAt: 5, length: sftpext.MaxData + 1, before: []byte("abcdef"), writeAt: 2,
			want: append([]byte("ab"), content[5:sftpext.MaxData+6]...)},
		{name: "less than one read", from: content, readAt: 5, length: 2, before: []byte("abcdef"), writeAt: 1, want: append([]byte("a"), append(content[5:7:7], "def"...)...)},
		{name: "to the end from an offset", from: content, readAt: 100, want: content[100:]},
		{name: "more than there is", from: []byte("abc"), length: 10, want: []byte("abc"), code: eof},
		{name: "beyond the end", from: []byte("abc"), readAt: 10, want: []byte{}},
		{name: "an offset over the maximum", from: []byte("abc"), readAt: 1 << 63, want: []byte{}, code: failure},
		{name: "a length over the maximum", from: []byte("abc"), readAt: 1, length: 1<<64 - 1, want: []byte("bc"), code: eof},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := connect(t)
			c.write("from", tt.from)
			c.write("to", tt.before)
			c.copy(9, c.open("from", forReading), tt.readAt, tt.length, c.open("to", forWriting), tt.writeAt)
			if code, message := c.status(9); code != tt.code {
				t.Errorf("got status %d (%s), want %d", code, message, tt.code)
			}
			if got := c.read("to"); !bytes.Equal(got, tt.want) {
				t.Errorf("copied %d bytes %.20q, want %d %.20q", len(got), got, len(tt.want), tt.want)
			}
		})
	}
}

// TestCopyErrors shows that the server's errors reach the client, and that the session then goes on.
func TestCopyErrors(t *testing.T) {
	c := connect(t)
	c.write("from", random(100))
	c.write("to", []byte("kept"))
	from, to := c.open("from", forReading), c.open("to", forWriting)
	again, absolute := c.open("from", forWriting), c.open(filepath.Join(c.dir, "x", "..", "from"), forWriting)
	readOnly := c.open("to", forReading)
	dir := c.open(".", forReading)
	for _, tt := range []struct {
		name, from, to, message string
	}{
		{"not open for writing", from, readOnly, "bad file descriptor"},
		{"not open for reading", to, again, "bad file descriptor"},
		{"no handle", "nope", to, "bad file descriptor"},
		{"a folder", dir, to, "is a directory"},
		{"same handle", from, from, "same file"},
		{"same file", from, again, "same file"},
		{"same file by another path", from, absolute, "same file"},
	} {
		c.copy(7, tt.from, 0, 0, tt.to, 50)
		if code, message := c.status(7); code != failure || !strings.Contains(message, tt.message) {
			t.Errorf("%s: got status %d (%s), want a failure: %s", tt.name, code, message, tt.message)
		}
	}
	c.send(extended, uint32(8), "copy-data", "cut off")
	if code, _ := c.status(8); code != badMessage {
		t.Errorf("request that is cut off: got status %d, want a bad message", code)
	}
	// A closed handle's number says nothing about the next file.
	c.send(closeFile, uint32(5), again)
	c.status(5)
	c.copy(9, from, 0, 0, to, 0)
	if code, message := c.status(9); code != ok || !bytes.Equal(c.read("to"), c.read("from")) {
		t.Errorf("after the errors: got status %d (%s)", code, message)
	}
}

// TestOrder sends everything before it reads an answer: the copy must see the writes before it and none of those after it, the
// answers must come in order, and the client may use a copy's id for other requests in flight.
func TestOrder(t *testing.T) {
	c := connect(t)
	c.write("from", nil)
	c.write("to", nil)
	from, to := c.open("from", 1|forWriting), c.open("to", forWriting)
	const pieces = 200
	piece := strings.Repeat("a", 1000)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range pieces {
			c.send(write, uint32(3), from, uint64(i*len(piece)), piece)
		}
		c.copy(3, from, 0, 0, to, 0)
		for i := range pieces {
			c.send(write, uint32(3), from, uint64(i*len(piece)), strings.ToUpper(piece))
		}
		c.send(extended, uint32(4), "limits@openssh.com")
	}()
	for range 2*pieces + 1 {
		if code, message := c.status(3); code != ok {
			t.Fatalf("got status %d (%s)", code, message)
		}
	}
	kind, b := c.receive()
	if want := packet(extendedReply, uint32(4), uint64(256<<10), uint64(sftpext.MaxData), uint64(sftpext.MaxData), uint64(0))[5:]; kind != extendedReply || !bytes.Equal(b, want) {
		t.Errorf("limits: got packet %d %q, want %q", kind, b, want)
	}
	<-sent
	if got := c.read("to"); string(got) != strings.Repeat(piece, pieces) {
		t.Errorf("the copy is not what was written before it: %d bytes", len(got))
	}
}

// TestLostClientEndsCopy copies a file without end. The connection's cleanup waits for the server.
func TestLostClientEndsCopy(t *testing.T) {
	c := connect(t)
	c.copy(9, c.open("/dev/zero", forReading), 0, 0, c.open("/dev/null", forWriting), 0)
	c.end()
}

func TestExpandPath(t *testing.T) {
	c := connect(t)
	for path, want := range map[string]string{
		"~": c.dir, "~/": c.dir, "~/a/b": c.dir + "/a/b", "a~": c.dir + "/a~", "/etc/../x": "/x", ".": c.dir, "": c.dir,
	} {
		c.send(extended, uint32(6), "expand-path@openssh.com", path)
		kind, b := c.receive()
		if kind != name || len(b) < 12 {
			t.Fatalf("%q: got packet %d %q, want a name", path, kind, b)
		}
		if got := string(b[12 : 12+binary.BigEndian.Uint32(b[8:])]); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
	c.send(extended, uint32(6), "expand-path@openssh.com", "~no-such-account/x")
	if code, message := c.status(6); code != noSuchFile || message != "unknown user no-such-account" {
		t.Errorf("unknown account: got status %d (%s)", code, message)
	}
	c.send(extended, uint32(6), "expand-path@openssh.com")
	if code, _ := c.status(6); code != badMessage {
		t.Errorf("request that is cut off: got status %d, want a bad message", code)
	}
}

func TestLongPacketEndsSession(t *testing.T) {
	for _, head := range [][]byte{{0, 4, 0, 1, extended}, {0xff, 0xff, 0xff, 0xff, extended}, {0, 0, 0, 0, extended}} {
		c := connect(t)
		if _, err := c.conn.Write(head); err != nil {
			t.Fatal(err)
		}
		if n, err := c.conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("% x: the session goes on", head)
		}
	}
}
