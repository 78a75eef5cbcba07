// Package hostkeys has the keys by which clients recognize the deployment: SSH host keys and the WireGuard gateway's
// key, which derive from one sealed secret, the SSH host seed, and two SSH certificate authorities. Every server has
// the same keys, and they stay the same while the secrets can be decrypted (docs/decisions/0050-ssh-host-keys.md,
// docs/decisions/0052-ssh-certificates.md). The package does not know who presents the keys, or what the authorities
// sign.
package hostkeys

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
)

const seedSize = 32

// Keys are the deployment's host keys and authorities. Safe for concurrent use.
type Keys struct {
	seed         []byte
	gateway      ssh.Signer
	userCA, host *Authority
}

// Gateway returns the host key of the SSH gateway, the same on every server of the deployment.
func (k *Keys) Gateway() ssh.Signer { return k.gateway }

// Agent returns the seed of the ed25519 host key of a workspace's agent: the same for each of its builds, and for its
// name alone.
func (k *Keys) Agent(workspace uuid.UUID, name string) []byte {
	return derive(k.seed, "agent", workspace.String(), name)
}

// Region returns the seed of the ed25519 host key of the SSH gateway of a region proxy.
func (k *Keys) Region(proxy uuid.UUID) []byte { return derive(k.seed, "region", proxy.String()) }

// WireGuard returns the private key of the WireGuard gateway (Curve25519, clamped), the same on every server of the
// deployment.
func (k *Keys) WireGuard() [wgquick.KeySize]byte {
	return k.wireGuard("codermesh wireguard gateway key")
}

// WireGuardAt returns the private key of the WireGuard gateway of a region proxy.
func (k *Keys) WireGuardAt(proxy uuid.UUID) [wgquick.KeySize]byte {
	return k.wireGuard("codermesh wireguard gateway key of a region\x00" + proxy.String())
}

// Alias returns what a region proxy calls a user: the same as long as both exist, something else at each proxy, and
// nothing from which a proxy learns who it is.
func (k *Keys) Alias(proxy, user uuid.UUID) (alias uuid.UUID) {
	k.users(proxy).Encrypt(alias[:], user[:])
	return alias
}

// User returns whom a region proxy calls by an alias. For one that the proxy made up, there is no such user.
func (k *Keys) User(proxy, alias uuid.UUID) (user uuid.UUID) {
	k.users(proxy).Decrypt(user[:], alias[:])
	return user
}

// users returns the permutation of ids from which a proxy's aliases come.
func (k *Keys) users(proxy uuid.UUID) cipher.Block {
	block, err := aes.NewCipher(expand(k.seed, "codermesh users at a region\x00"+proxy.String()))
	if err != nil {
		panic(err) // only for keys of another length
	}
	return block
}

func (k *Keys) wireGuard(info string) [wgquick.KeySize]byte {
	key := [wgquick.KeySize]byte(expand(k.seed, info))
	wgquick.Clamp(&key)
	return key
}

// UserCA returns the authority that certifies users' keys.
func (k *Keys) UserCA() *Authority { return k.userCA }

// HostCA returns the authority that certifies host keys.
func (k *Keys) HostCA() *Authority { return k.host }

// Load reads the secrets and derives the keys. It creates a secret that is not there, and replaces one that the ring
// does not open. Call it only after the server's keys have been compared with those of running servers
// (replicas.Check): a server with other keys would replace their secrets.
func Load(ctx context.Context, db *database.DB, ring *keyring.Ring, log *slog.Logger) (*Keys, error) {
	seed, err := kept{keyring.HostSeed, "SSH host seed", isSeed}.load(ctx, db, ring, log)
	if err != nil {
		return nil, err
	}
	gateway, err := signer(derive(seed, "gateway"))
	if err != nil {
		return nil, err
	}
	keys := &Keys{
		seed: seed, gateway: gateway, userCA: newAuthority(keyring.UserCA, "SSH user CA", db, ring),
		host: newAuthority(keyring.HostCA, "SSH host CA", db, ring),
	}
	for _, authority := range []*Authority{keys.userCA, keys.host} {
		if _, err := authority.kept.load(ctx, db, ring, log); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func isSeed(secret []byte) bool { return len(secret) == seedSize }

// signer returns the ed25519 key of a seed.
func signer(seed []byte) (ssh.Signer, error) {
	key, err := ssh.NewSignerFromSigner(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		return nil, fmt.Errorf("make SSH key: %w", err)
	}
	return key, nil
}

// derive returns the seed of the ed25519 host key with a label. What it returns for a label must never change.
func derive(seed []byte, label ...string) []byte { return expand(seed, info(label)) }

// expand returns the 32 bytes that HKDF makes of the seed with an info parameter. No info of one kind of key may be one
// of another.
func expand(seed []byte, info string) []byte {
	key, err := hkdf.Key(sha256.New, seed, nil, info, seedSize)
	if err != nil {
		panic(err) // only for keys that are longer than HKDF makes
	}
	return key
}

// info returns the info parameter of HKDF (RFC 5869, section 2.3) for a label: a constant, and each part of the label
// after its length as four bytes, big endian. So different labels have different infos.
func info(label []string) string {
	out := []byte("codermesh ssh host key\x00")
	for _, part := range label {
		out = binary.BigEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return string(out)
}
