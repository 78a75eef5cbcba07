// Package signedtoken is the form of every token that one part of the deployment signs and another verifies without
// asking: JSON and its HMAC-SHA-256, both in base64. What it means, and how long it is valid, is its users' matter:
// package coderd/signed for what servers sign for themselves and each other, package internal/visa for what they sign
// for an agent.
package signedtoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

// maxToken bounds the tokens that Verify reads, in bytes.
const maxToken = 4096

// ErrInvalid reports that the token was not signed with this key for this purpose.
var ErrInvalid = errors.New("the token is not valid")

// Sign returns a token that contains v and is valid for one purpose. It fails only if JSON cannot encode v.
func Sign(key []byte, purpose string, v any) (secret.Token, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	encoding := base64.RawURLEncoding
	return secret.Token(encoding.EncodeToString(payload) + "." + encoding.EncodeToString(sum(key, purpose, payload))),
		nil
}

// Verify decodes a token's content into v. The error is ErrInvalid, whatever is wrong; without a key, every token is.
func Verify(key []byte, purpose string, token secret.Token, v any) error {
	first, second, ok := strings.Cut(token.Reveal(), ".")
	if !ok || len(token) > maxToken || len(key) == 0 {
		return ErrInvalid
	}
	encoding := base64.RawURLEncoding.Strict()
	payload, err := encoding.DecodeString(first)
	if err != nil {
		return ErrInvalid
	}
	signature, err := encoding.DecodeString(second)
	if err != nil || !hmac.Equal(signature, sum(key, purpose, payload)) {
		return ErrInvalid
	}
	if json.Unmarshal(payload, v) != nil {
		return ErrInvalid
	}
	return nil
}

func sum(key []byte, purpose string, payload []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose))
	mac.Write([]byte{0})
	mac.Write(payload)
	return mac.Sum(nil)
}
