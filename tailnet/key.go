package tailnet

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
)

// PrivateKey is a node's WireGuard private key (Curve25519, clamped). It prints as a fingerprint; only MarshalText
// reveals it, as "privkey:" and 64 hex digits, for the file in which a process keeps it.
type PrivateKey [32]byte

// NewPrivateKey generates a random key.
func NewPrivateKey() PrivateKey {
	var k PrivateKey
	rand.Read(k[:])
	k[0] &= 248 // clamp as RFC 7748, section 5 specifies
	k[31] = k[31]&127 | 64
	return k
}

// Public returns the corresponding public key.
func (k PrivateKey) Public() PublicKey {
	secret, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		panic(err) // any 32 bytes are a valid key
	}
	return PublicKey(secret.PublicKey().Bytes())
}

func (k PrivateKey) IsZero() bool { return k == PrivateKey{} }

// String returns a fingerprint of the key: equal for equal keys, useless for anything else.
func (k PrivateKey) String() string {
	if k.IsZero() {
		return "privkey(none)"
	}
	public := k.Public()
	sum := sha256.Sum256(public[:])
	return "privkey(" + hex.EncodeToString(sum[:4]) + ")"
}

func (k PrivateKey) GoString() string     { return k.String() }
func (k PrivateKey) LogValue() slog.Value { return slog.StringValue(k.String()) }

func (k PrivateKey) MarshalText() ([]byte, error) {
	return []byte("privkey:" + hex.EncodeToString(k[:])), nil
}

func (k *PrivateKey) UnmarshalText(text []byte) error {
	return parseKey(k[:], "privkey:", string(text))
}
