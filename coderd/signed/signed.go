// Package signed creates and verifies short-lived tokens. They are signed with the deployment's key, not encrypted, and
// every server of the deployment can verify them without the database. The package does not interpret their contents.
package signed

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/signedtoken"
)

// setting is the row that keeps the key. The first server of a deployment creates it.
const setting = "signing_key"

const keyLength = 32

// Leeway is how much longer a token is accepted than its lifetime says: the clock of the server that signed it may be a
// minute ahead of or behind the database's (package replicas), and that of the server that verifies it a minute the
// other way.
const Leeway = 2 * time.Minute

// ErrInvalid reports that this deployment did not issue the token for this purpose, or that it has expired.
var ErrInvalid = errors.New("the token is not valid")

// Signer holds the deployment's key. Safe for concurrent use.
type Signer struct{ key []byte }

// Load reads the key, and creates one if there is none.
func Load(ctx context.Context, db *database.DB) (*Signer, error) {
	key := make([]byte, keyLength)
	rand.Read(key) // never fails
	if err := db.InsertSettingOnce(ctx, dbsqlc.InsertSettingOnceParams{Key: setting, Value: key}); err != nil {
		return nil, fmt.Errorf("store signing key: %w", err)
	}
	key, err := db.GetSetting(ctx, setting)
	if err != nil {
		return nil, fmt.Errorf("read signing key: %w", err)
	}
	return New(key)
}

// New does what Load does with a key from the caller.
func New(key []byte) (*Signer, error) {
	if len(key) != keyLength {
		return nil, fmt.Errorf("the signing key has %d bytes, want %d", len(key), keyLength)
	}
	return &Signer{key}, nil
}

// envelope is the signed content.
type envelope struct {
	Expires int64           `json:"e"` // Unix time
	Data    json.RawMessage `json:"d"`
}

// Sign returns a token that contains v, for one purpose and a lifetime, which Verify prolongs by Leeway. It fails only
// if JSON cannot encode v.
func (s *Signer) Sign(purpose string, v any, lifetime time.Duration) (secret.Token, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signedtoken.Sign(s.key, purpose, envelope{time.Now().Add(lifetime).Unix(), data})
}

// Verify decodes a token's content into v. The error is ErrInvalid, whatever is wrong.
func (s *Signer) Verify(purpose string, token secret.Token, v any) error {
	var e envelope
	if signedtoken.Verify(s.key, purpose, token, &e) != nil || time.Now().Add(-Leeway).Unix() >= e.Expires ||
		json.Unmarshal(e.Data, v) != nil {
		return ErrInvalid
	}
	return nil
}

// Derive returns a secret for one purpose, the same at every server of the deployment. Tokens reveal nothing about it.
func (s *Signer) Derive(purpose string) [32]byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte{0}) // no purpose of a token begins with it
	mac.Write([]byte(purpose))
	return [32]byte(mac.Sum(nil))
}
