package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// FileKnownHosts is a known_hosts file for OpenSSH, in the configuration folder. "coder ssh --stdio" writes this
// machine's key (fileHostKey) for the workspace there before it answers OpenSSH.
const FileKnownHosts = "ssh_known_hosts"

// maxKnownHosts bounds the lines of the file. The oldest are dropped.
const maxKnownHosts = 2000

// rememberHost writes key to the known_hosts file as the only key of host, in the form that OpenSSH was given.
func rememberHost(path, host string, key ssh.PublicKey) error {
	if strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789.-_/") != "" {
		return fault.New(fault.Invalid, "the host name %q contains characters that workspace names cannot have", host)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder of known hosts: %w", err)
	}
	names := knownNames(host)
	line := names + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	if text, err := os.ReadFile(path); err == nil && hasLine(string(text), line) {
		return nil
	}
	// Two connections at the same time must not overwrite each other's line.
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock known hosts: %w", err)
	}
	defer lock.Close() // unlocks
	if err := config.Lock(lock); err != nil {
		return fmt.Errorf("lock known hosts: %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read known hosts: %w", err)
	}
	return config.WriteFile(path, []byte(replaceHost(string(text), names, line)), 0o600)
}

// knownNames returns a host's names in known_hosts, with the default port and with any other.
func knownNames(host string) string {
	host = strings.ToLower(host)
	return host + ",[" + host + "]:*"
}

func hasLine(text, line string) bool { return strings.Contains("\n"+text, "\n"+line+"\n") }

// replaceHost removes the lines of the names and appends line. It drops lines of any other form.
func replaceHost(text, names, line string) string {
	var lines []string
	for old := range strings.Lines(text) {
		old = strings.TrimRight(old, "\r\n")
		if have, _, ok := strings.Cut(old, " "); ok && have != names {
			lines = append(lines, old)
		}
	}
	lines = append(lines, line)
	if len(lines) > maxKnownHosts {
		lines = lines[len(lines)-maxKnownHosts:]
	}
	return strings.Join(lines, "\n") + "\n"
}
