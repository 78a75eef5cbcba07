package mesh

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/websock"
)

// linkOverhead is how much longer an encrypted message is, in bytes.
const linkOverhead = 16

// cipherConn encrypts the messages of a link with AES-256-GCM. Each direction of each link has a key of its own, and
// the nonce is the number of the message, so a repeated, omitted, reordered or altered message ends the link. One
// goroutine at a time may read, and one write.
type cipherConn struct {
	*websock.Conn
	in, out half
	sealed  []byte // the latest message that was written
}

// half is one direction.
type half struct {
	aead cipher.AEAD
	n    uint64
}

// newCipherConn encrypts a link at the end own. ends has the dialer's nonce, accepted is the other end's.
func newCipherConn(
	conn *websock.Conn, key [32]byte, own uuid.UUID, ends linkServers, accepted string,
) (*cipherConn, error) {
	c := &cipherConn{Conn: conn}
	salt := []byte(ends.Nonce + " " + accepted)
	for sender, h := range map[uuid.UUID]*half{own: &c.out, ends.other(own): &c.in} {
		secret, err := hkdf.Key(sha256.New, key[:], salt, ends.From.String()+" "+ends.To.String()+" "+sender.String(),
			32)
		if err != nil {
			return nil, fmt.Errorf("derive key of link: %w", err)
		}
		block, err := aes.NewCipher(secret)
		if err != nil {
			return nil, fmt.Errorf("encrypt link: %w", err)
		}
		if h.aead, err = cipher.NewGCM(block); err != nil {
			return nil, fmt.Errorf("encrypt link: %w", err)
		}
	}
	return c, nil
}

// other returns the end of a link that is not id.
func (l linkServers) other(id uuid.UUID) uuid.UUID {
	if l.From == id {
		return l.To
	}
	return l.From
}

// nonce returns the next message's nonce.
func (h *half) nonce() []byte {
	h.n++
	return binary.BigEndian.AppendUint64(make([]byte, 4, 12), h.n)
}

// open decrypts the next message in place.
func (h *half) open(data []byte) ([]byte, error) {
	data, err := h.aead.Open(data[:0], h.nonce(), data, nil)
	if err != nil {
		return nil, errTampered
	}
	return data, nil
}

var errTampered = errors.New("a message of the link is not authentic")

func (c *cipherConn) Write(ctx context.Context, data []byte) error {
	c.sealed = c.out.aead.Seal(c.sealed[:0], c.out.nonce(), data, nil)
	return c.WriteBinary(ctx, c.sealed)
}

func (c *cipherConn) Read(ctx context.Context) ([]byte, error) { return c.ReadInto(ctx, nil) }

// ReadInto is Read into a buffer, as that of websock.Conn.
func (c *cipherConn) ReadInto(ctx context.Context, buf []byte) ([]byte, error) {
	data, err := c.Conn.ReadInto(ctx, buf)
	if err != nil {
		return nil, err
	}
	return c.in.open(data)
}
