package session

import (
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// fileHostKey holds this machine's SSH host key, in the configuration folder. "coder ssh --stdio" presents it to
// OpenSSH for every workspace: OpenSSH talks to a process on its own machine, and the mesh identifies the workspace by
// its node key.
const fileHostKey = "ssh_host_ed25519_key"

// hostKey returns this machine's host key. The first call creates it. If the key cannot be stored, hostKey reports that
// on notes and returns a key for this process alone.
func hostKey(dir config.Dir, notes io.Writer) (ssh.Signer, error) {
	key, err := storedHostKey(dir)
	if fault.CodeOf(err) == fault.Unavailable {
		fmt.Fprintf(notes, "OpenSSH will see a different host key each time: %v\n", err)
		text, newErr := newHostKey()
		if newErr != nil {
			return nil, newErr
		}
		return ssh.ParsePrivateKey(text)
	}
	return key, err
}

// storedHostKey reads the host key, or creates it. The error's code is Unavailable if the key cannot be stored.
func storedHostKey(d config.Dir) (ssh.Signer, error) {
	path := filepath.Join(string(d), fileHostKey)
	text, err := d.Read(fileHostKey)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot read the SSH host key: %w", err)
	}
	if text == "" {
		if text, err = makeHostKey(d, path); err != nil {
			return nil, fault.New(fault.Unavailable, "cannot store the SSH host key: %w", err)
		}
	}
	key, err := ssh.ParsePrivateKey([]byte(text + "\n"))
	if err != nil {
		return nil, exit.Try(fault.New(fault.Invalid, "%s is not an SSH host key: %w", path, err),
			"Remove the file. The next connection creates a new key.")
	}
	return key, nil
}

// makeHostKey stores a new key, unless another process has stored one.
func makeHostKey(d config.Dir, path string) (string, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // unlocks
	if err := config.Lock(lock); err != nil {
		return "", fmt.Errorf("lock %s: %w", path, err)
	}
	if text, err := d.Read(fileHostKey); err != nil || text != "" {
		return text, err
	}
	text, err := newHostKey()
	if err != nil {
		return "", err
	}
	return string(text), config.WriteFile(path, text, 0o600)
}

// newHostKey creates a key in OpenSSH's format.
func newHostKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("make SSH host key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "codermesh")
	if err != nil {
		return nil, fmt.Errorf("encode SSH host key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}
