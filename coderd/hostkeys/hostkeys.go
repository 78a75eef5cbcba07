// Package hostkeys has the keys by which clients recognize the deployment: SSH host keys, and the WireGuard gateway's. All derive from one sealed
// secret, the SSH host seed. Every server derives the same keys, and they stay the same while the seed can be decrypted
// (docs/decisions/0050-ssh-host-keys.md). The package does not know who presents the keys.
package hostkeys

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
)

const seedSize = 32

// Keys are the deployment's host keys. Safe for concurrent use.
type Keys struct {
	seed    []byte
	gateway ssh.Signer
}

// Gateway returns the host key of the SSH gateway, the same on every server of the deployment.
func (k *Keys) Gateway() ssh.Signer { return k.gateway }

// Agent returns the seed of the ed25519 host key of a workspace's agent: the same for each of its builds, and for its name alone.
func (k *Keys) Agent(workspace uuid.UUID, name string) []byte {
	return derive(k.seed, "agent", workspace.String(), name)
}

// WireGuard returns the private key of the WireGuard gateway (Curve25519, clamped), the same on every server of the deployment.
func (k *Keys) WireGuard() [wgquick.KeySize]byte {
	key := [wgquick.KeySize]byte(expand(k.seed, "codermesh wireguard gateway key"))
	wgquick.Clamp(&key)
	return key
}

// Load reads the seed and derives the keys. It creates the seed if there is none, and replaces one that the ring does not open. Call it only after
// the server's keys have been compared with those of running servers (replicas.Check): a server with other keys would replace their seed.
func Load(ctx context.Context, db *database.DB, ring *keyring.Ring, log *slog.Logger) (*Keys, error) {
	seed, err := loadSeed(ctx, db, ring, log)
	if err != nil {
		return nil, err
	}
	gateway, err := ssh.NewSignerFromSigner(ed25519.NewKeyFromSeed(derive(seed, "gateway")))
	if err != nil {
		return nil, fmt.Errorf("derive SSH host key: %w", err)
	}
	return &Keys{seed, gateway}, nil
}

// loadSeed returns the seed that the first server stored, among several that start at the same moment.
func loadSeed(ctx context.Context, db *database.DB, ring *keyring.Ring, log *slog.Logger) ([]byte, error) {
	fresh := make([]byte, seedSize)
	rand.Read(fresh) // never fails
	sealed := ring.SealSecret(keyring.HostSeedPlace(), fresh)
	if err := db.InsertSettingOnce(ctx, dbsqlc.InsertSettingOnceParams{Key: keyring.HostSeed, Value: sealed}); err != nil {
		return nil, fmt.Errorf("store SSH host seed: %w", err)
	}
	stored, seed, err := readSeed(ctx, db, ring)
	if err != nil || seed != nil {
		return seed, err
	}
	log.WarnContext(ctx, "cannot decrypt SSH host seed, replacing it: SSH host keys change")
	if _, err := db.ReplaceSetting(ctx, dbsqlc.ReplaceSettingParams{Key: keyring.HostSeed, After: sealed, Before: stored}); err != nil {
		return nil, fmt.Errorf("replace SSH host seed: %w", err)
	}
	if _, seed, err = readSeed(ctx, db, ring); err != nil || seed != nil {
		return seed, err
	}
	return nil, fault.New(fault.Conflict, "Another server replaced the SSH host seed at the same time, with a key that this server does not have").
		WithDetail("Give all servers the same keys with --state-encryption-key-file, and restart them.")
}

// readSeed returns the seed as it is stored, and decrypted: nil if it cannot be.
func readSeed(ctx context.Context, db *database.DB, ring *keyring.Ring) (stored, seed []byte, err error) {
	if stored, err = db.GetSetting(ctx, keyring.HostSeed); err != nil {
		return nil, nil, fmt.Errorf("read SSH host seed: %w", err)
	}
	seed, err = ring.OpenSecret(keyring.HostSeedPlace(), stored)
	if errors.Is(err, keyring.ErrUnreadable) || err == nil && len(seed) != seedSize {
		return stored, nil, nil
	}
	return stored, seed, err
}

// derive returns the seed of the ed25519 host key with a label. What it returns for a label must never change.
func derive(seed []byte, label ...string) []byte { return expand(seed, info(label)) }

// expand returns the 32 bytes that HKDF makes of the seed with an info parameter. No info of one kind of key may be one of another.
func expand(seed []byte, info string) []byte {
	key, err := hkdf.Key(sha256.New, seed, nil, info, seedSize)
	if err != nil {
		panic(err) // only for keys that are longer than HKDF makes
	}
	return key
}

// info returns the info parameter of HKDF (RFC 5869, section 2.3) for a label: a constant, and each part of the label after its length as four
// bytes, big endian. So different labels have different infos.
func info(label []string) string {
	out := []byte("codermesh ssh host key\x00")
	for _, part := range label {
		out = binary.BigEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return string(out)
}
