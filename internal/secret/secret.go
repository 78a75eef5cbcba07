// Package secret wraps credentials so that they cannot be printed by accident, generates new ones, and hashes them for
// storage.
package secret

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"log/slog"
)

// Token is a credential. It prints and logs as a fingerprint; Reveal returns the text.
type Token string

// Reveal returns the credential itself.
func (t Token) Reveal() string { return string(t) }

// String returns a fingerprint: the first 8 hex digits of the hash.
func (t Token) String() string {
	if t == "" {
		return "token()"
	}
	sum := t.Hash()
	return "token(" + hex.EncodeToString(sum[:4]) + ")"
}

func (t Token) GoString() string     { return t.String() }
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Hash returns the token's SHA-256. Tokens are random and long, so an unsalted fast hash is enough to store them.
func (t Token) Hash() []byte {
	sum := sha256.Sum256([]byte(t))
	return sum[:]
}

// Offline returns the token that an agent derives from its own, which the server has refused: with it, the agent asks
// whether the next start of its workspace admits it. It does not reveal the agent's own.
func (t Token) Offline() Token {
	sum := sha256.Sum256([]byte("offline agent " + string(t)))
	return Token(hex.EncodeToString(sum[:]))
}

// Matches reports, in constant time, whether hash is the token's hash.
func (t Token) Matches(hash []byte) bool { return subtle.ConstantTimeCompare(t.Hash(), hash) == 1 }

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// Text returns n random letters and digits (5.95 bits each).
func Text(n int) string {
	out := make([]byte, 0, n)
	buf := make([]byte, 2*n)
	for len(out) < n {
		rand.Read(buf)
		for _, b := range buf {
			if int(b) < len(alphabet)*4 && len(out) < n {
				out = append(out, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return string(out)
}
