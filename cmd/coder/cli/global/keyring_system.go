//go:build darwin || windows

package global

import (
	"errors"

	keyringlib "github.com/zalando/go-keyring"
)

// keyringService is the name of our entries in the system's keyring.
const keyringService = "codermesh"

type systemKeyring struct{}

func (systemKeyring) get(server string) (string, error) {
	token, err := keyringlib.Get(keyringService, server)
	if errors.Is(err, keyringlib.ErrNotFound) {
		return "", nil
	}
	return token, err
}

func (systemKeyring) set(server, token string) error {
	return keyringlib.Set(keyringService, server, token)
}

func (systemKeyring) remove(server string) error {
	if err := keyringlib.Delete(keyringService, server); !errors.Is(err, keyringlib.ErrNotFound) {
		return err
	}
	return nil
}
