package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	gossh "golang.org/x/crypto/ssh"
)

// HostKeyFile is the name of the host key in the state folder.
const HostKeyFile = "ssh_host_ed25519_key"

// NewHostKey makes an ed25519 key that lives as long as the process.
func NewHostKey() (gossh.Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate host key: %w", err)
	}
	return gossh.NewSignerFromKey(key)
}

// LoadHostKey reads the host key in dir, or makes one there that only the owner can read. A file that
// holds no key is an error, not a reason to make another: a silently changed host key looks like an attack to every client.
func LoadHostKey(dir string) (gossh.Signer, error) {
	path := filepath.Join(dir, HostKeyFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createHostKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read host key: %w", err)
	}
	key, err := gossh.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("read host key %s: %w", path, err)
	}
	return key, nil
}

// createHostKey writes the file whole or not at all. Of two agents that start at once, one wins and both use its key.
func createHostKey(path string) (gossh.Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate host key: %w", err)
	}
	block, err := gossh.MarshalPrivateKey(key, "codermesh agent")
	if err != nil {
		return nil, fmt.Errorf("encode host key: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), HostKeyFile+".*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("create host key: %w", err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(pem.EncodeToMemory(block))
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return nil, fmt.Errorf("write host key: %w", err)
	}
	if err := os.Link(temp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		// Not every file system has links. A rename may replace the key of another that starts now: the read below sees that.
		if err := os.Rename(temp.Name(), path); err != nil {
			return nil, fmt.Errorf("create host key: %w", err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read host key: %w", err)
	}
	return gossh.ParsePrivateKey(data)
}

// AuthorizedKey is the text form of a public key, without a newline.
func AuthorizedKey(key gossh.PublicKey) string {
	return strings.TrimSpace(string(gossh.MarshalAuthorizedKey(key)))
}
