package tailnet

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"

	"go4.org/mem"
	"tailscale.com/types/key"
)

// PrivateKey is a node's WireGuard private key (Curve25519, clamped). It prints as a fingerprint; only MarshalText gives it
// away, as "privkey:" and 64 hex digits, for the file in which a process keeps it.
type PrivateKey [32]byte

// NewPrivateKey draws a key.
func NewPrivateKey() PrivateKey { return key.NewNode().Raw32() }

// Public is the key's other half.
func (k PrivateKey) Public() PublicKey { return k.node().Public().Raw32() }

func (k PrivateKey) IsZero() bool { return k == PrivateKey{} }

// String is a fingerprint of the key: equal for equal keys, useless for anything else.
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

func (k PrivateKey) node() key.NodePrivate { return key.NodePrivateFromRaw32(mem.B(k[:])) }

func (k PublicKey) node() key.NodePublic  { return key.NodePublicFromRaw32(mem.B(k[:])) }
func (k DiscoKey) disco() key.DiscoPublic { return key.DiscoPublicFromRaw32(mem.B(k[:])) }
