// Package wgquick owns the texts of WireGuard that people copy between programs: keys, as `wg` writes them, and
// configurations, as wg-quick and WireGuard's apps read them. It opens no device and knows neither the server nor the
// mesh.
package wgquick

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

// Key is a public key of Curve25519.
type Key [KeySize]byte

// String returns the key as `wg pubkey` prints it.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// ParseKey parses a public key as `wg pubkey` prints it. Its error is always a fault, Invalid, that repeats nothing of
// the text, which may be secret.
func ParseKey(text string) (Key, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != KeySize || base64.StdEncoding.EncodeToString(raw) != text {
		return Key{}, fault.New(fault.Invalid, "This is not a public key of WireGuard.").
			WithDetail("A key is 44 characters that end in =, as `wg pubkey` prints it.")
	}
	key := Key(raw)
	if !key.usable() {
		return Key{}, fault.New(fault.Invalid, "This public key belongs to no private key.").
			WithDetail("Create another pair with: wg genkey | tee private | wg pubkey")
	}
	return key, nil
}

// usable reports whether a peer can have the key. It refuses points of low order (RFC 7748, section 6.1), with which
// every private key agrees on zero, and other encodings of a point than the one that programs make, so that a key has
// one form.
func (k Key) usable() bool {
	public, err := ecdh.X25519().NewPublicKey(k[:])
	if err != nil {
		return false
	}
	probe, err := ecdh.X25519().NewPrivateKey(make([]byte, KeySize)) // clamped when it is used, so that it is not zero
	if err != nil {
		return false
	}
	if _, err := probe.ECDH(public); err != nil { // the result is zero
		return false
	}
	return k.canonical()
}

// canonical reports whether the key, a little-endian number, is less than 2^255-19.
func (k Key) canonical() bool {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(k[8*i:]) }
	high, all := word(3), ^uint64(0)
	if high != all>>1 || word(2) != all || word(1) != all {
		return high <= all>>1
	}
	return word(0) < all-18
}

// Pair is a key pair.
type Pair struct {
	Private secret.Token // as `wg genkey` prints it
	Public  Key
}

// NewPair makes a key pair.
func NewPair() (Pair, error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("create WireGuard key: %w", err)
	}
	raw := private.Bytes()
	Clamp((*[KeySize]byte)(raw))
	return Pair{secret.Token(base64.StdEncoding.EncodeToString(raw)), Key(private.PublicKey().Bytes())}, nil
}

// Clamp makes the bytes a private key of Curve25519 (RFC 7748, section 5), as `wg genkey` does.
func Clamp(private *[KeySize]byte) {
	private[0] &= 248
	private[31] = private[31]&127 | 64
}

// Public returns the public key of a private one.
func Public(private [KeySize]byte) Key {
	key, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		panic(err) // only for another length
	}
	return Key(key.PublicKey().Bytes())
}
