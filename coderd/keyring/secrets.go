package keyring

import (
	"bytes"
	"errors"
	"slices"

	"github.com/google/uuid"
)

// ErrUnreadable reports that a stored secret cannot be read: its key is gone, it is damaged, or it was moved.
var ErrUnreadable = errors.New("the stored secret cannot be read with the server's keys")

// Place is where a secret is kept: it can be opened at no other place, and never in the place of a state. Only this
// package makes places, so that it knows every kind of secret that has to follow a new key (kinds).
type Place struct{ name string }

// GitKeyPlace returns where a user's private key for git is kept.
func GitKeyPlace(user uuid.UUID) Place { return Place{"git_ssh_keys " + user.String()} }

// LoginPlace returns where the tokens of a user's external login are kept.
func LoginPlace(user uuid.UUID, provider string) Place {
	return Place{"external_auth_links " + user.String() + " " + provider}
}

// SecretPlace returns where the value of a user's secret is kept.
func SecretPlace(user, id uuid.UUID) Place {
	return Place{"user_secrets " + user.String() + " " + id.String()}
}

// WebhookPlace returns where the URL and the signing secret of a webhook are kept.
func WebhookPlace(id uuid.UUID) Place { return Place{"webhooks " + id.String()} }

// SSHSetting is a setting that keeps a secret of coderd/hostkeys.
type SSHSetting string

// All of them. The queries CountSealed and DeleteSettingsUnder name them, too.
const (
	HostSeed SSHSetting = "ssh_host_seed"
	UserCA   SSHSetting = "ssh_user_ca"
	HostCA   SSHSetting = "ssh_host_ca"
)

// Place returns where the setting's secret is kept.
func (s SSHSetting) Place() Place { return Place{string(s)} }

// IdentitySetting is the setting that keeps the keys of coderd/identity. The queries CountSealed and
// DeleteSettingsUnder name it, too.
const IdentitySetting = "identity_keys"

// IdentityPlace returns where the keys of coderd/identity are kept.
func IdentityPlace() Place { return Place{IdentitySetting} }

// ACMEPlace returns where ACME's data of a name is kept.
func ACMEPlace(name string) Place { return Place{"acme " + name} }

// SealSecret encrypts a secret other than a state, in the same stored form.
func (r *Ring) SealSecret(place Place, secret []byte) []byte {
	out := r.header()
	return r.keys[0].aead.Seal(out, nil, secret, place.additional(out))
}

// OpenSecret returns the secret that was stored at a place, or ErrUnreadable.
func (r *Ring) OpenSecret(place Place, stored []byte) ([]byte, error) {
	id, encrypted := keyOf(stored)
	k := r.find(id)
	if !encrypted || k == nil {
		return nil, ErrUnreadable
	}
	secret, err := k.aead.Open(nil, nil, stored[headerSize:], place.additional(stored[:headerSize]))
	if err != nil {
		return nil, ErrUnreadable
	}
	return secret, nil
}

// header returns the first bytes of everything that the first key has encrypted.
func (r *Ring) header() []byte { return headerOf(r.keys[0].id) }

func headerOf(id keyID) []byte { return append(slices.Clone(magic), id[:]...) }

// keyOf returns the id of the key that a stored value names, or false if the value is not encrypted.
func keyOf(stored []byte) (id keyID, encrypted bool) {
	if len(stored) < headerSize || !bytes.HasPrefix(stored, magic) {
		return id, false
	}
	return keyID(stored[len(magic):headerSize]), true
}

// additional returns the additional data of a secret. A state's additional data is the header and 16 bytes, which this
// never is.
func (p Place) additional(header []byte) []byte {
	return append(bytes.Clone(header), "codermesh secret at\x00"+p.name...)
}
