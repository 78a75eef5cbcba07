// Package keyring encrypts what the database must not show to a reader of it. The first of that are Terraform states,
// because they contain credentials of the resources that a template created. The package owns the keys and the stored
// form of a state, and knows nothing of builds except the column.
//
//	00 'c' 'm' 's' 01 | id of the key, 8 bytes | nonce, 12 bytes | AES-256-GCM ciphertext and tag
//
// The additional data is the header up to the nonce and the id of the workspace: a state that was moved to another
// workspace's row is refused. A state without this header was stored by a release that did not encrypt. An empty state
// stays empty.
//
// The users' tokens for other services (coderd/extauth), their secrets (coderd/secrets), their private keys for git,
// the seed of SSH host keys (coderd/hostkeys), the keys that sign ID tokens (coderd/identity) and ACME's data
// (coderd/certcache) are kept under the same keys, in the same form: SealSecret, OpenSecret.
//
// A ring has several keys while they are rotated. Servers encrypt with the first and decrypt with all; Rotate brings
// everything under the first (kinds has all there is), and Usages tells which keys are still needed. Forget continues
// without a key that is lost.
//
// Encryption protects copies of the database: backups, disks, replicas. It does not protect against someone who can
// write to the database or read the server's memory or files.
package keyring

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// keySize is the key size of AES-256, in bytes.
const keySize = 32

// magic begins every stored state; the generated column state_key looks for it, too.
var magic = []byte{0, 'c', 'm', 's', 1}

const (
	idSize     = 8
	headerSize = 5 + idSize
	maxKeys    = 100
)

// keyID names a key without revealing it.
type keyID [idSize]byte

func (id keyID) String() string { return hex.EncodeToString(id[:]) }

type key struct {
	id   keyID
	aead cipher.AEAD
}

// Ring holds the keys: the first encrypts, all decrypt. Safe for concurrent use.
type Ring struct{ keys []key }

// Parse parses keys, each the base64 of 32 random bytes, separated by commas or white space. Its error is a fault,
// Invalid.
func Parse(text string) (*Ring, error) {
	var ring Ring
	for word := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ',' || unicode.IsSpace(c) }) {
		raw, err := base64.StdEncoding.DecodeString(word)
		if err != nil || len(raw) != keySize {
			return nil, badKey("key %d is not the base64 of %d bytes", len(ring.keys)+1, keySize)
		}
		k, err := newKey(raw)
		if err != nil {
			return nil, err
		}
		if ring.find(k.id) != nil {
			return nil, badKey("key %d is there twice", len(ring.keys)+1)
		}
		if ring.keys = append(ring.keys, k); len(ring.keys) > maxKeys {
			return nil, badKey("there are more than %d keys", maxKeys)
		}
	}
	if len(ring.keys) == 0 {
		return nil, badKey("there is no key")
	}
	return &ring, nil
}

func badKey(format string, args ...any) error {
	return fault.New(fault.Invalid, "The key for Terraform's states cannot be used: "+format, args...).
		WithDetail("Generate one with: openssl rand -base64 %d", keySize)
}

func newKey(raw []byte) (key, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return key{}, fmt.Errorf("make cipher: %w", err)
	}
	// The nonce is random: one key may encrypt 2^32 states, a million a day for eleven years.
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return key{}, fmt.Errorf("make cipher: %w", err)
	}
	sum := sha256.Sum256(append([]byte("codermesh state key id\x00"), raw...))
	return key{id: keyID(sum[:idSize]), aead: aead}, nil
}

// Read reads the keys in a file.
func Read(path string) (*Ring, error) {
	text, err := secret.ReadFile(path)
	if fault.As(err) != nil {
		return nil, err
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "The file with the key for Terraform's states cannot be read: %w", err).
			WithDetail("Name a file that the server's account can read.")
	}
	ring, err := Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ring, nil
}

// ReadOrMake reads the keys in a file like Read, or returns a ring with a new key if the file does not exist. keep
// writes a new key into the file, readable by this account only; nothing may be encrypted with the key before that.
// keep is nil for a key that is already in the file. So a failed start leaves no key that would hide from the operator
// that the right one is missing.
func ReadOrMake(path string) (ring *Ring, keep func() error, err error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		ring, err := Read(path)
		return ring, nil, err
	}
	raw := make([]byte, keySize)
	rand.Read(raw)
	text := base64.StdEncoding.EncodeToString(raw)
	if ring, err = Parse(text); err != nil {
		return nil, nil, err
	}
	return ring, func() error {
		if err := create(path, text+"\n"); err != nil {
			return fmt.Errorf("keep the key for Terraform's states: %w", err)
		}
		kept, err := Read(path)
		if err == nil && kept.keys[0].id != ring.keys[0].id {
			return fault.New(fault.Conflict, "Another server created a key for Terraform's states in %s at the same time", path).
				WithDetail("Restart this server to use that key.")
		}
		return err
	}, nil
}

// Missing returns those of some ids of keys that the ring lacks.
func (r *Ring) Missing(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), r.Has)
}

// Install writes keys, in the form that Parse reads, into a file that does not exist, readable by this account only. A
// file that exists is left as it is.
func Install(path, text string) error {
	if _, err := Parse(text); err != nil {
		return err
	}
	if err := create(path, strings.TrimSpace(text)+"\n"); err != nil {
		return fmt.Errorf("keep the key for Terraform's states: %w", err)
	}
	return nil
}

// create writes a file completely or not at all, and leaves an existing file unchanged.
func create(path, text string) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*") // for this account only
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// IDs returns the ids of the keys, the one that encrypts first. They reveal nothing about the keys.
func (r *Ring) IDs() []string {
	var ids []string
	for _, k := range r.keys {
		ids = append(ids, k.id.String())
	}
	return ids
}

// Has reports whether the ring has the key of an id.
func (r *Ring) Has(id string) bool { return slices.Contains(r.IDs(), id) }

func (r *Ring) find(id keyID) *key {
	for i := range r.keys {
		if r.keys[i].id == id {
			return &r.keys[i]
		}
	}
	return nil
}

// Seal returns a state in its stored form.
func (r *Ring) Seal(workspace uuid.UUID, state []byte) []byte {
	if len(state) == 0 {
		return []byte{}
	}
	k := r.keys[0]
	out := append(make([]byte, 0, headerSize+len(state)+k.aead.Overhead()), r.header()...)
	return k.aead.Seal(out, nil, state, additional(out, workspace))
}

func additional(header []byte, workspace uuid.UUID) []byte {
	return append(bytes.Clone(header), workspace[:]...)
}

// Open returns the state that was stored. Its faults tell the user what to do; no data is lost by them.
func (r *Ring) Open(workspace uuid.UUID, stored []byte) ([]byte, error) {
	if !bytes.HasPrefix(stored, magic) {
		return stored, nil
	}
	id, whole := keyOf(stored)
	if !whole {
		return nil, damaged()
	}
	k := r.find(id)
	if k == nil {
		return nil, fault.New(fault.Conflict, "Terraform's state of this workspace is encrypted with the key %s, which the server does not have", id).
			WithDetail("Give it to the server beside the others, with --state-encryption-key-file, and restart it. If the key is lost, give the " +
				"workspace a state with coder state push, or delete the workspace with --orphan. The state itself is unchanged.")
	}
	state, err := k.aead.Open(nil, nil, stored[headerSize:], additional(stored[:headerSize], workspace))
	if err != nil {
		return nil, damaged()
	}
	return state, nil
}

func damaged() error {
	return fault.New(fault.Conflict, "Terraform's state of this workspace is damaged in the database, or belongs to another workspace").
		WithDetail("Restore it from a backup with: coder state push. The stored state is unchanged.")
}
