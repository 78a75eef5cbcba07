package wireguard

import "crypto/ecdh"

// PublicKey returns the public key of a private one.
func PublicKey(private Key) (Key, error) {
	k, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return Key{}, err
	}
	return Key(k.PublicKey().Bytes()), nil
}
