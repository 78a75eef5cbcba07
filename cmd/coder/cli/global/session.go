package global

import (
	"errors"
	"net/url"
	"strings"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// keyring keeps a token per server in the system's store of passwords. It is a variable for tests.
var keyring interface {
	// get returns "" if there is no token.
	get(server string) (string, error)
	set(server, token string) error
	remove(server string) error
} = systemKeyring{}

// SessionToken returns the session token of the flag, or else the stored one; "" without a session.
func (g *Flags) SessionToken() (secret.Token, error) {
	if g.Token != "" {
		return secret.Token(strings.TrimSpace(g.Token)), nil
	}
	if g.useKeyring {
		server, err := g.ServerURL()
		if err != nil {
			return "", err
		}
		token, err := keyring.get(server.String())
		return secret.Token(token), keyringFault(err)
	}
	dir, err := g.Config()
	if err != nil {
		return "", err
	}
	token, err := dir.Read(config.FileSession)
	return secret.Token(token), err
}

// StoreSession stores a session and makes its server the default.
func (g *Flags) StoreSession(server *url.URL, token secret.Token) error {
	dir, err := g.Config()
	if err != nil {
		return err
	}
	if !g.useKeyring {
		return errors.Join(dir.Write(config.FileSession, token.Reveal()), dir.Write(config.FileURL, server.String()))
	}
	if err := keyring.set(server.String(), token.Reveal()); err != nil {
		return keyringFault(err)
	}
	return dir.Write(config.FileURL, server.String())
}

// ForgetSession removes the stored session of a server. The server's address stays: the next sign-in is usually there.
func (g *Flags) ForgetSession(server *url.URL) error {
	dir, err := g.Config()
	if err != nil {
		return err
	}
	if err := dir.Remove(config.FileCompletions); err != nil {
		return err
	}
	if g.useKeyring {
		return keyringFault(keyring.remove(server.String()))
	}
	return dir.Remove(config.FileSession)
}

func keyringFault(err error) error {
	if err == nil {
		return nil
	}
	return exit.Try(fault.New(fault.Invalid, "cannot use the system's keyring: %w", err),
		"Leave out --use-keyring (or unset CODER_USE_KEYRING): the session is then kept in the configuration folder.")
}
