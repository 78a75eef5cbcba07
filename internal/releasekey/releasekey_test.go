package releasekey_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/releasekey"
)

// TestKey: what scripts verify with is a public key for ECDSA on P-256, or nothing.
func TestKey(t *testing.T) {
	t.Parallel()
	key := releasekey.PEM()
	if key == "" {
		return // the source has no key: releases are unsigned
	}
	block, rest := pem.Decode([]byte(key))
	if block == nil || len(rest) > 0 {
		t.Fatalf("not one PEM block:\n%s", key)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if public, ok := parsed.(*ecdsa.PublicKey); !ok || public.Curve != elliptic.P256() {
		t.Errorf("not a public key of P-256: %T, %v", parsed, err)
	}
}
