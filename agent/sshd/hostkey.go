package sshd

import (
	"strings"

	gossh "golang.org/x/crypto/ssh"
)

// AuthorizedKey is the text form of a public key, without a newline.
func AuthorizedKey(key gossh.PublicKey) string {
	return strings.TrimSpace(string(gossh.MarshalAuthorizedKey(key)))
}
