package bridge

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// hello returns the first bytes that a client with these ciphers sends.
func hello(ciphers ...string) []byte {
	payload := ssh.Marshal(struct {
		Cookie                [16]byte `sshtype:"20"`
		Kex, HostKey, Ciphers []string
		Rest                  []byte `ssh:"rest"`
	}{Kex: []string{"curve25519-sha256"}, HostKey: []string{"ssh-ed25519"}, Ciphers: ciphers})
	packet := binary.BigEndian.AppendUint32([]byte("SSH-2.0-test\r\n"), uint32(len(payload)+5))
	return append(append(append(packet, 4), payload...), 0, 0, 0, 0)
}

func TestReadCiphers(t *testing.T) {
	t.Parallel()
	want := []string{"aes128-ctr", ssh.CipherAES128GCM}
	for what, text := range map[string][]byte{"plain": hello(want...), "after other lines": append([]byte("welcome\r\nto this\n"), hello(want...)...)} {
		got, err := readCiphers(bufio.NewReader(bytes.NewReader(text)))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", what, got, err, want)
		}
	}
	for what, text := range map[string]string{
		"nothing": "", "half a line": "SSH-2.0", "an endless line": strings.Repeat("x", 1<<20), "endless lines": strings.Repeat("x\n", 1000),
		"an endless packet": "SSH-2.0-x\n\xff\xff\xff\xff\x00", "only padding": "SSH-2.0-x\n\x00\x00\x00\x02\x09xxxxxxxxx", "another packet": "SSH-2.0-x\n\x00\x00\x00\x04\x01\x15xx",
		"an empty packet": "SSH-2.0-x\n\x00\x00\x00\x01\x00",
	} {
		if got, err := readCiphers(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%s: got %v, want an error", what, got)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	old, both := []string{ssh.CipherAES256CTR}, []string{ssh.CipherChaCha20Poly1305, ssh.CipherAES128CTR, ssh.CipherAES256GCM}
	if got := choose(both, true); slices.Contains(got, ssh.CipherChaCha20Poly1305) || slices.Contains(got, ssh.CipherAES128CTR) {
		t.Errorf("a client that has AES-GCM, where it is fast: got %v", got)
	}
	for what, got := range map[string][]string{
		"a client without AES-GCM": choose(old, true), "a client that said nothing": choose(nil, true), "a slow processor": choose(both, false),
	} {
		if !slices.Contains(got, ssh.CipherAES256CTR) || !slices.Contains(got, ssh.CipherChaCha20Poly1305) {
			t.Errorf("%s: got %v, want everything", what, got)
		}
	}
}

// TestEveryCipher checks that clients with any single cipher, and one that waits for the server to begin, can connect.
func TestEveryCipher(t *testing.T) {
	t.Parallel()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(choose(nil, true), "waits") {
		near, far := net.Pipe()
		b := Start(far, Options{HostKey: key})
		config := &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()}
		conn := net.Conn(near)
		if name == "waits" {
			conn = &waiting{Conn: near, begun: make(chan struct{})}
		} else {
			config.Ciphers = []string{name}
		}
		client, _, _, err := ssh.NewClientConn(conn, "", config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			client.Close()
		}
		near.Close()
		b.Close()
	}
}

// waiting sends only its version before it has read the server's first packet.
type waiting struct {
	net.Conn
	begun  chan struct{}
	read   int
	writes int
}

func (w *waiting) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if before := w.read; before <= 300 {
		if w.read += n; w.read > 300 { // more than a version
			close(w.begun)
		}
	}
	return n, err
}

func (w *waiting) Write(b []byte) (int, error) {
	if w.writes++; w.writes > 1 {
		<-w.begun
	}
	return w.Conn.Write(b)
}

// FuzzHello feeds readCiphers with arbitrary first bytes from a client.
func FuzzHello(f *testing.F) {
	f.Add(hello("aes128-ctr", ssh.CipherAES128GCM))
	f.Add([]byte("SSH-2.0-x\n\x00\x00\x00\x04\x01\x15xx"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.NewReader(data)
		if _, err := readCiphers(bufio.NewReaderSize(in, 16)); err != nil {
			return
		}
		if rest, err := io.ReadAll(in); err != nil || len(rest) == len(data) {
			t.Fatalf("accepted without being read: %v", err)
		}
	})
}
