package states

import (
	"bytes"
	"errors"
	"slices"
)

// ErrUnreadable says that a stored secret cannot be read: its key is not there any more, it is damaged, or it was moved.
var ErrUnreadable = errors.New("the stored secret cannot be read with the server's keys")

// SealSecret is a secret other than a state, in the same stored form. Place names where it is kept, such as a table and a row: it
// opens nowhere else, and never where a state is.
func (r *Keyring) SealSecret(place string, secret []byte) []byte {
	k := r.keys[0]
	out := append(slices.Clone(magic), k.id[:]...)
	return k.aead.Seal(out, nil, secret, placed(out, place))
}

// OpenSecret is the secret that was stored at a place, or ErrUnreadable.
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

// Header is what everything begins with that the first key has encrypted.
func (r *Keyring) Header() []byte { return append(slices.Clone(magic), r.keys[0].id[:]...) }

// placed is the additional data of a secret. A state's is the header and 16 bytes, which this is never.
func placed(header []byte, place string) []byte {
	return append(bytes.Clone(header), "codermesh secret at\x00"+place...)
}
