// Package sshkey owns the rules that users' SSH public keys obey: which texts are keys, which keys are accepted, and
// what they may be called. The command line checks a text before it sends it, so that a private key stays on its
// machine, and the server checks it again. It knows neither the server nor the gateway that signs people in.
package sshkey

import (
	"bytes"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

const (
	// MaxKeys is how many keys a user can have.
	MaxKeys = 50
	// MaxName is how long a key's name can be, in bytes.
	MaxName = 64
	// MinRSABits is the size of the smallest RSA key that is accepted.
	MinRSABits = 3072

	maxText = 16 << 10 // bytes; the largest key of OpenSSH takes 3 KiB
	maxKey  = 4096     // bytes of a key in the wire format
)

// types are the accepted types of keys.
var types = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
}

// A private key is recognized by the lines that enclose it, by PuTTY's first line, and by its first bytes in base64
// without such lines.
var privateForm = lazyregexp.New(`(?i)(BEGIN|END) [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File|Private-Lines:|b3BlbnNzaC1rZXktdjE|AGE-SECRET-KEY`)

var nameForm = lazyregexp.New(`^[A-Za-z0-9_]+([ .@+-][A-Za-z0-9_]+)*$`)

// Key is a public key and the comment behind it, which usually names its owner and machine.
type Key struct {
	ssh.PublicKey
	Comment string
}

// Fingerprint returns the fingerprint of the key as ssh-keygen prints it.
func (k Key) Fingerprint() string { return ssh.FingerprintSHA256(k.PublicKey) }

// Parse parses the text of a file such as id_ed25519.pub: one line with a type, a key and a comment. Its error is
// always a fault, Invalid, that says what to do and repeats nothing of the text, which may be secret.
func Parse(text string) (Key, error) {
	text = strings.TrimSpace(text)
	switch {
	case len(text) > maxText:
		return Key{}, refused("The text is too long for a public key.").
			WithDetail("Use the file whose name ends in .pub.")
	case privateForm().MatchString(text):
		return Key{}, refused("This is a private key, or contains one.").
			WithDetail("Keep it secret, and use the file whose name ends in .pub. If other people may have seen the " +
				"private key, create another one with: ssh-keygen -t ed25519")
	case text == "":
		return Key{}, refused("There is no key.").
			WithDetail("Paste the line in a file such as ~/.ssh/id_ed25519.pub, or create a key with: ssh-keygen -t " +
				"ed25519")
	case strings.HasPrefix(text, "---- BEGIN SSH2 PUBLIC KEY"):
		return Key{}, refused("This public key is in the format of RFC 4716.").
			WithDetail("Convert it with: ssh-keygen -i -f FILE")
	case strings.HasPrefix(text, "-----BEGIN"):
		return Key{}, refused("This is a PEM file instead of an OpenSSH public key.").
			WithDetail("Use the file whose name ends in .pub, or convert a public key with: ssh-keygen -i -m PKCS8 " +
				"-f FILE")
	case strings.ContainsAny(text, "\r\n"):
		return Key{}, refused("There are several lines.").
			WithDetail("Add one key at a time: the line that begins with its type, such as ssh-ed25519.")
	}
	return parseLine(strings.Fields(text))
}

// parseLine parses the words of a line.
func parseLine(words []string) (Key, error) {
	kind := words[0]
	switch {
	case strings.Contains(kind, "-cert-v0"):
		return Key{}, refused("This is a certificate.").
			WithDetail("Use the public key that it certifies: the file whose name ends in .pub without -cert.")
	case kind == "ssh-dss":
		return Key{}, refused("Keys of the type DSA are too weak.").
			WithDetail("Create another key with: ssh-keygen -t ed25519")
	case !slices.Contains(types, kind) && slices.ContainsFunc(words, known):
		return Key{}, refused("There are options or other words before the key.").
			WithDetail("Leave them out: begin with the type of the key, such as ssh-ed25519.")
	case !slices.Contains(types, kind):
		return Key{}, notAKey()
	case len(words) < 2:
		return Key{}, refused("The key is incomplete: only its type is there.").WithDetail("Copy the whole line.")
	}
	wire, err := base64.StdEncoding.Strict().DecodeString(words[1])
	if err != nil {
		return Key{}, damaged()
	}
	key, err := ssh.ParsePublicKey(wire)
	// One key has one form: others would have other fingerprints.
	if err != nil || key.Type() != kind || !bytes.Equal(key.Marshal(), wire) || len(wire) > maxKey {
		return Key{}, damaged()
	}
	if bits := rsaBits(key); bits > 0 && bits < MinRSABits {
		return Key{}, refused(fmt.Sprintf("RSA keys of %d bits are too weak: they must have at least %d bits.", bits,
			MinRSABits)).
			WithDetail("Create another key with: ssh-keygen -t ed25519")
	}
	return Key{PublicKey: key, Comment: strings.Join(words[2:], " ")}, nil
}

// known reports whether a word is a type of keys. Options end in the last of their words.
func known(word string) bool {
	return word == "ssh-dss" ||
		slices.ContainsFunc(types, func(kind string) bool { return strings.HasSuffix(word, kind) })
}

// rsaBits returns the size of an RSA key, 0 for others.
func rsaBits(key ssh.PublicKey) int {
	if of, ok := key.(ssh.CryptoPublicKey); ok {
		if public, ok := of.CryptoPublicKey().(*rsa.PublicKey); ok {
			return public.N.BitLen()
		}
	}
	return 0
}

func refused(message string) *fault.Error { return fault.New(fault.Invalid, "%s", message) }

func notAKey() error {
	return refused("This is not an SSH public key that can be used.").
		WithDetail("A key is one line that begins with its type: %s, or %s.", strings.Join(types[:len(types)-1], ", "),
			types[len(types)-1])
}

func damaged() error {
	return refused("The key is damaged or incomplete.").
		WithDetail("Copy the whole line of the file whose name ends in .pub.")
}

// CheckName returns what is wrong with a key's name, or "". It does not repeat the name, which may be a key that was
// pasted into the wrong place.
func CheckName(name string) string {
	if len(name) > MaxName || !nameForm().MatchString(name) {
		return fmt.Sprintf("must be at most %d letters, digits and underscores, with single spaces, dots, hyphens, "+
			"plus signs or @ between them", MaxName)
	}
	return ""
}
