package signin

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// maxSubject bounds what names a user at a provider, in bytes (OpenID Connect Core, 2).
	maxSubject = 255
	// maxText bounds one claim that is used, in bytes.
	maxText = 1024
	// maxClaims bounds the claims that are kept, in bytes of JSON. The largest ones are left out.
	maxClaims = 64 << 10
)

func badClaim(name, problem string) error {
	return fault.New(fault.Invalid, "The identity provider's claim %.64q %s.", name, problem).
		WithDetail("The operator must check the claims that the provider sends, and the --oidc-…-field options.")
}

// textClaim returns a claim that must be text, trimmed; "" if it is missing.
func textClaim(claims map[string]any, name string) (string, error) {
	switch v := claims[name].(type) {
	case nil:
		return "", nil
	case string:
		if len(v) > maxText {
			return "", badClaim(name, fmt.Sprintf("has more than %d bytes", maxText))
		}
		if strings.ContainsRune(v, 0) {
			return "", badClaim(name, "contains a NUL character")
		}
		return strings.TrimSpace(v), nil
	default:
		return "", badClaim(name, "must be text, not "+kindOf(v))
	}
}

// verification is what a provider says of an email address.
type verification int

const (
	unsaid verification = iota
	unverifiedEmail
	verifiedEmail
)

// emailVerified is the claim about the address (OpenID Connect Core, 5.1).
const emailVerified = "email_verified"

// verifiedClaim reads email_verified, which some providers send as text.
func verifiedClaim(claims map[string]any) (verification, error) {
	const name = emailVerified
	switch v := claims[name].(type) {
	case nil:
		return unsaid, nil
	case bool:
		if v {
			return verifiedEmail, nil
		}
		return unverifiedEmail, nil
	case string:
		switch strings.ToLower(v) { // Entra ID capitalizes them
		case "true":
			return verifiedEmail, nil
		case "false":
			return unverifiedEmail, nil
		}
		return unsaid, badClaim(name, "must be true or false")
	default:
		return unsaid, badClaim(name, "must be true or false, not "+kindOf(v))
	}
}

func kindOf(v any) string {
	switch v.(type) {
	case float64:
		return "a number"
	case bool:
		return "a truth value"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "something else"
}

// keptClaims encodes the claims that are stored: without the largest ones if all of them are too large, and without
// those that the database cannot hold.
func keptClaims(claims map[string]any) (json.RawMessage, error) {
	kept, size := map[string]json.RawMessage{}, len("{}")
	type claim struct {
		name string
		text json.RawMessage
	}
	var all []claim
	for name, v := range claims {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode claim: %w", err)
		}
		if !strings.ContainsRune(name, 0) && !strings.Contains(string(text), `\u0000`) {
			all = append(all, claim{name, text})
		}
	}
	slices.SortFunc(all, func(a, b claim) int {
		return cmp.Or(cmp.Compare(len(a.text), len(b.text)), cmp.Compare(a.name, b.name))
	})
	for _, c := range all {
		// Six bytes for each byte of the name, at most, and the punctuation.
		if size += len(c.text) + 6*len(c.name) + len(`"":,`); size > maxClaims {
			break
		}
		kept[c.name] = c.text
	}
	return json.Marshal(kept)
}

// payloadOf returns the claims in a JSON Web Token, which is not checked.
func payloadOf(raw string) ([]byte, error) {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return nil, errors.New("the token does not have three parts")
	}
	return base64.RawURLEncoding.DecodeString(parts[1])
}
