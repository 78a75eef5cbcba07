package bridge

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/cpu"
)

const (
	maxLine   = 255                    // bytes of a version line, RFC 4253, section 4.2
	maxLines  = 32                     // before a version line
	maxHello  = 35000                  // bytes of a packet that every implementation must accept, RFC 4253, section 6.1
	kexInit   = 20                     // SSH_MSG_KEXINIT
	helloTime = 500 * time.Millisecond // how long a client may take to send its ciphers
)

// greeted is the connection to a client after both ends have exchanged their greetings. It replays the client's
// greeting to the SSH library, and skips the greeting that the library writes first, so that it is not sent twice.
type greeted struct {
	net.Conn
	first   io.Reader
	skipped []byte // what remains to be skipped
}

func (g *greeted) Read(b []byte) (int, error) { return g.first.Read(b) }

func (g *greeted) Write(b []byte) (int, error) {
	n := min(len(b), len(g.skipped))
	if !bytes.Equal(b[:n], g.skipped[:n]) {
		return 0, errors.New("the SSH library did not send its version first")
	}
	g.skipped = g.skipped[n:]
	if n == len(b) {
		return n, nil
	}
	m, err := g.Conn.Write(b[n:])
	return n + m, err
}

// greet sends the version, reads the client's version and ciphers, and returns the ciphers to offer. The client's order
// of ciphers decides, and many releases of OpenSSH prefer ciphers that are slower than AES-GCM where the processor has
// AES instructions: AES-CTR with its checksums costs twice as much, chacha20 three times. There, a client that supports
// AES-GCM is offered nothing else. A client that waits for the server's list first is offered all ciphers after
// helloTime.
func greet(conn *stream, version string) (client net.Conn, ciphers []string, err error) {
	line := []byte(version + "\r\n")
	if _, err := conn.Write(line); err != nil {
		return nil, nil, err
	}
	timer := time.NewTimer(helloTime)
	defer timer.Stop()
	conn.until = timer.C
	var seen bytes.Buffer
	offered, err := readCiphers(bufio.NewReaderSize(io.TeeReader(conn, &seen), maxHello))
	conn.until = nil
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil, err
	}
	return &greeted{conn, io.MultiReader(&seen, conn), line}, choose(offered, fastAES()), nil
}

// fastAES reports whether the processor has instructions for AES-GCM.
func fastAES() bool {
	return cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ || cpu.ARM64.HasAES && cpu.ARM64.HasPMULL
}

// choose returns the ciphers to offer to a client with these ciphers.
func choose(client []string, fast bool) []string {
	gcm := []string{ssh.CipherAES128GCM, ssh.CipherAES256GCM}
	if fast && slices.ContainsFunc(gcm, func(c string) bool { return slices.Contains(client, c) }) {
		return gcm
	}
	return append(gcm, ssh.CipherChaCha20Poly1305, ssh.CipherAES128CTR, ssh.CipherAES192CTR, ssh.CipherAES256CTR)
}

// readCiphers reads a client's version and first packet, and returns the ciphers that it supports for sending.
func readCiphers(in *bufio.Reader) ([]string, error) {
	for n := 0; ; n++ {
		line, err := readLine(in)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(line, "SSH-") {
			break
		}
		if n == maxLines {
			return nil, errors.New("read version: the client did not send one")
		}
	}
	var head [5]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	length, padding := binary.BigEndian.Uint32(head[:]), uint32(head[4])
	if length > maxHello || length < padding+1 {
		return nil, fmt.Errorf("read first packet: invalid length %d", length)
	}
	packet := make([]byte, length-1)
	if _, err := io.ReadFull(in, packet); err != nil {
		return nil, err
	}
	return parseKexInit(packet[:length-1-padding])
}

// readLine reads a line of at most maxLine bytes.
func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	for len(line) < maxLine {
		b, err := in.ReadByte()
		if err != nil {
			return "", err
		}
		if b == '\n' {
			return string(line), nil
		}
		line = append(line, b)
	}
	return "", errors.New("read version: the line is too long")
}

// parseKexInit returns the client-to-server ciphers of an SSH_MSG_KEXINIT (RFC 4253, section 7.1).
func parseKexInit(payload []byte) ([]string, error) {
	if len(payload) == 0 || payload[0] != kexInit {
		return nil, errors.New("read first packet: not a key exchange")
	}
	var lists struct {
		Cookie  [16]byte
		Kex     []string
		HostKey []string
		Ciphers []string
		Rest    []byte `ssh:"rest"`
	}
	if err := ssh.Unmarshal(payload[1:], &lists); err != nil {
		return nil, fmt.Errorf("read first packet: %w", err)
	}
	return lists.Ciphers, nil
}
