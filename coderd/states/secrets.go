package states

import (
	"bytes"
	"errors"
	"slices"
)

// ErrUnreadable reports that a stored secret cannot be read: its key is gone, it is damaged, or it was moved.
var ErrUnreadable = errors.New("the stored secret cannot be read with the server's keys")

// SealSecret encrypts a secret other than a state, in the same stored form. Place names where it is kept, such as a table
// and a row: the secret can be opened at no other place, and never in the place of a state.
func (r *Keyring) SealSecret(place string, secret []byte) []byte {
	k := r.keys[0]
	out := append(slices.Clone(magic), k.id[:]...)
	return k.aead.Seal(out, nil, secret, placed(out, place))
}

// OpenSecret returns the secret that was stored at a place, or ErrUnreadable.
func (r *Keyring) OpenSecret(place string, stored []byte) ([]byte, error) {
	if !bytes.HasPrefix(stored, magic) || len(stored) < headerSize {
		return nil, ErrUnreadable
	}
	k := r.find(keyID(stored[len(magic):headerSize]))
	if k == nil {
		return nil, ErrUnreadable
	}
	secret, err := k.aead.Open(nil, nil, stored[headerSize:], placed(stored[:headerSize], place))
	if err != nil {
		return nil, ErrUnreadable
	}
	return secret, nil
}

// Header returns the first bytes of everything that the first key has encrypted.
func (r *Keyring) Header() []byte { return append(slices.Clone(magic), r.keys[0].id[:]...) }

// placed returns the additional data of a secret. A state's additional data is the header and 16 bytes, which this never is.
func placed(header []byte, place string) []byte {
	return append(bytes.Clone(header), "codermesh secret at\x00"+place...)
}
