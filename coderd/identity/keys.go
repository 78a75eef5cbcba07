package identity

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// keyBits is the size of a key. Clouds accept 2048 bits and more; a longer one makes each token longer and slower.
const keyBits = 2048

// keys are the keys that count, in the order in which they are stored. Verifiers keep what they fetched for hours.
// They know each key before it signs, because they have seen it as the next one, and after it, because it stays as
// the previous one.
type keys struct {
	Next     jose.JSONWebKey // signs after the next rotation
	Current  jose.JSONWebKey // signs
	Previous *jose.JSONWebKey
}

// parsedKeys are keys with the sealed value that they come from.
type parsedKeys struct {
	stored []byte
	keys   keys
}

// newKey makes a private key. Its id is the thumbprint of its public half (RFC 7638).
func newKey() (jose.JSONWebKey, error) {
	private, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return jose.JSONWebKey{}, fmt.Errorf("make key: %w", err)
	}
	key := jose.JSONWebKey{Key: private, Algorithm: string(jose.RS256), Use: "sig"}
	sum, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return key, fmt.Errorf("name key: %w", err)
	}
	key.KeyID = base64.RawURLEncoding.EncodeToString(sum)
	return key, nil
}

func newKeys() (k keys, err error) {
	if k.Next, err = newKey(); err != nil {
		return k, err
	}
	k.Current, err = newKey()
	return k, err
}

// all returns the keys as they are stored.
func (k keys) all() []jose.JSONWebKey {
	all := []jose.JSONWebKey{k.Next, k.Current}
	if k.Previous != nil {
		all = append(all, *k.Previous)
	}
	return all
}

// public returns what verifiers may see.
func (k keys) public() jose.JSONWebKeySet {
	var set jose.JSONWebKeySet
	for _, key := range k.all() {
		set.Keys = append(set.Keys, key.Public())
	}
	return set
}

func (k keys) marshal() ([]byte, error) {
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: k.all()})
	if err != nil {
		return nil, fmt.Errorf("encode keys: %w", err)
	}
	return text, nil
}

// parseKeys reads what marshal wrote.
func parseKeys(text []byte) (k keys, err error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(text, &set); err != nil {
		return k, fmt.Errorf("decode keys: %w", err)
	}
	if len(set.Keys) < 2 || len(set.Keys) > 3 {
		return k, fmt.Errorf("decode keys: there are %d", len(set.Keys))
	}
	for _, key := range set.Keys {
		if private, ok := key.Key.(*rsa.PrivateKey); !ok || private.N.BitLen() < keyBits || key.KeyID == "" {
			return k, errors.New("decode keys: one is not a private key for RS256")
		}
	}
	k.Next, k.Current = set.Keys[0], set.Keys[1]
	if len(set.Keys) == 3 {
		k.Previous = &set.Keys[2]
	}
	return k, nil
}

// load returns the keys, of which it makes some if there are none. All servers of the database have the same ones at
// any moment, because each reads them for each question.
func (s *Service) load(ctx context.Context, q *dbsqlc.Queries) (keys, error) {
	stored, err := q.GetSetting(ctx, keyring.IdentitySetting)
	if database.IsNotFound(err) {
		if err := s.create(ctx, q); err != nil {
			return keys{}, err
		}
		stored, err = q.GetSetting(ctx, keyring.IdentitySetting)
	}
	if err != nil {
		return keys{}, fmt.Errorf("read keys of ID tokens: %w", err)
	}
	if last := s.parsed.Load(); last != nil && bytes.Equal(last.stored, stored) {
		return last.keys, nil
	}
	k, err := s.open(stored)
	if err != nil {
		return keys{}, err
	}
	s.parsed.Store(&parsedKeys{stored, k})
	return k, nil
}

func (s *Service) open(stored []byte) (keys, error) {
	text, err := s.opts.Keys.OpenSecret(keyring.IdentityPlace(), stored)
	if err == nil {
		var k keys
		if k, err = parseKeys(text); err == nil {
			return k, nil
		}
	}
	return keys{}, fault.New(fault.Unavailable, "This server cannot read the keys that sign ID tokens: %w", err).
		WithDetail("Give all servers the same keys with --state-encryption-key-file, and restart them. " +
			"If the key is lost, make new ones with: coder identity rotate --all")
}

func (s *Service) seal(k keys) ([]byte, error) {
	text, err := k.marshal()
	if err != nil {
		return nil, err
	}
	return s.opts.Keys.SealSecret(keyring.IdentityPlace(), text), nil
}

// create stores keys unless another server has stored some.
func (s *Service) create(ctx context.Context, q *dbsqlc.Queries) error {
	k, err := newKeys()
	if err != nil {
		return err
	}
	sealed, err := s.seal(k)
	if err != nil {
		return err
	}
	first := dbsqlc.InsertSettingOnceParams{Key: keyring.IdentitySetting, Value: sealed}
	if err := q.InsertSettingOnce(ctx, first); err != nil {
		return fmt.Errorf("store keys of ID tokens: %w", err)
	}
	return nil
}

// Rotate makes the next key sign, keeps the present one as the previous one, and makes a new next key. With all, it
// replaces all keys: tokens that were issued before no longer count, and keys that cannot be read are no obstacle. It
// belongs to the caller's transaction.
func (s *Service) Rotate(ctx context.Context, q *dbsqlc.Queries, all bool) (before, after []string, err error) {
	if err := q.LockSetting(ctx, keyring.IdentitySetting); err != nil {
		return nil, nil, fmt.Errorf("lock keys of ID tokens: %w", err)
	}
	old, err := s.load(ctx, q)
	if err != nil && (!all || fault.CodeOf(err) != fault.Unavailable) {
		return nil, nil, err
	}
	for _, key := range old.all() {
		if key.KeyID != "" {
			before = append(before, key.KeyID)
		}
	}
	k := keys{Current: old.Next, Previous: &old.Current}
	if all {
		k, err = newKeys()
	} else {
		k.Next, err = newKey()
	}
	if err != nil {
		return nil, nil, err
	}
	sealed, err := s.seal(k)
	if err != nil {
		return nil, nil, err
	}
	if err := q.UpdateSetting(ctx, dbsqlc.UpdateSettingParams{
		Key: keyring.IdentitySetting, Value: sealed,
	}); err != nil {
		return nil, nil, fmt.Errorf("store keys of ID tokens: %w", err)
	}
	for _, key := range k.all() {
		after = append(after, key.KeyID)
	}
	return before, after, nil
}
