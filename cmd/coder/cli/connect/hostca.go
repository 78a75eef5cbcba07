package connect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// fileHostCA is a known_hosts file for OpenSSH, in the configuration folder, by which a workspace's own SSH server is
// known behind a jump through the gateway (ssh -J GATEWAY dev.coder).
const fileHostCA = "ssh_host_ca"

const (
	maxAuthorities  = 8
	maxAuthority    = 16 << 10 // bytes of a line
	authorityMarker = "@cert-authority "
	workspaceHosts  = "*.coder"
)

// authority is the known_hosts file of the server's SSH host CA. Its text is empty if the server has none.
type authority struct{ path, text string }

// hostAuthority returns the text of the file, for hosts: a pattern of known_hosts.
func hostAuthority(ctx context.Context, client *sdk.Client, hosts string) (string, error) {
	ca, err := client.SSHHostAuthority(ctx)
	if fault.CodeOf(err) == fault.NotFound { // an older server
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return authorityLines(ca.KnownHosts, hosts)
}

// authorityLines returns the lines that make OpenSSH trust a server's CA for hosts. It refuses lines that vouch for
// more than workspaces and single hosts, such as the gateway.
func authorityLines(lines []string, trusted string) (string, error) {
	if len(lines) > maxAuthorities {
		return "", fault.New(fault.Invalid, "the server names %d SSH host CAs, more than are used", len(lines))
	}
	var b strings.Builder
	for _, line := range lines {
		bad := fault.New(fault.Invalid, "the server's line for known_hosts is not one of an SSH host CA: %.100q", line)
		if len(line) > maxAuthority || !strings.HasPrefix(line, authorityMarker) {
			return "", bad
		}
		_, hosts, key, _, rest, err := ssh.ParseKnownHosts([]byte(line))
		if err != nil || len(rest) > 0 || strings.ContainsFunc(line, unicode.IsControl) {
			return "", bad
		}
		for i, host := range hosts {
			if host != workspaceHosts && (i == 0 || strings.ContainsAny(host, "*?!")) {
				return "", bad
			}
		}
		b.WriteString(authorityMarker + trusted + " " + string(ssh.MarshalAuthorizedKey(key)))
	}
	return b.String(), nil
}

// write writes the file, or removes it if the server has no CA.
func (a authority) write() error {
	if a.text == "" {
		if err := os.Remove(a.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the file of the SSH host CA: %w", err)
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(a.path), 0o700); err != nil {
		return fmt.Errorf("make the configuration folder: %w", err)
	}
	return config.WriteFile(a.path, []byte(a.text), 0o600)
}
