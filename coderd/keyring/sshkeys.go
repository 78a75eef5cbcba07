package keyring

import (
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// OpenSSHKey returns a private SSH key in OpenSSH's PEM form that is stored at a place, either sealed or, by an older
// release, plain. Its fault, Conflict, tells the user what to do.
func (r *Ring) OpenSSHKey(place Place, plain string, sealed []byte) (string, error) {
	if len(sealed) == 0 {
		return plain, nil
	}
	key, err := r.OpenSecret(place, sealed)
	if err != nil {
		return "", fault.New(fault.Conflict, "An SSH key cannot be read with the server's encryption keys: %w", err).
			WithDetail("Give the server the missing key with --state-encryption-key-file. Without it, a user's key for git is replaced by: coder publickey --reset")
	}
	return string(key), nil
}
