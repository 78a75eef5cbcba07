package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

const (
	// programsName is the list of the slim programs that a server embeds, and serves at /bin.
	programsName = "SHA256SUMS.release"
	// signed follows a list's name. The file has a line for each key: an ECDSA signature on P-256 over the list's
	// SHA-256, as ASN.1 in base64. "openssl dgst -sha256 -verify" reads it.
	signed = ".sig"
	// publicKey is where the tree has the key that its releases are signed with.
	publicKey = "internal/releasekey/keys/release.pub"
	// sealedKey is the type of a private key that a password encrypts, in cosign's format.
	sealedKey = "ENCRYPTED SIGSTORE PRIVATE KEY"
)

// signer signs lists, or takes the published signatures of a release that is built again.
type signer struct {
	keys []*ecdsa.PrivateKey
	// published are the signatures of the programs' list; "" without them.
	published string
	// public are the keys of the tree, each of which must find its signature.
	public []*ecdsa.PublicKey
}

// signs reports whether there are keys.
func (s *signer) signs() bool { return len(s.keys) > 0 }

// load reads what the flags name.
func (s *signer) load(root, passwordFile, signature string, keys []string) error {
	*s = signer{}
	if len(keys) > 0 && signature != "" {
		return errors.New("-key and -signature exclude each other: one signs a release, the other one builds a " +
			"signed release again")
	}
	for _, path := range keys {
		key, err := readKey(path, passwordFile)
		if err != nil {
			return fmt.Errorf("read the key %s: %w", path, err)
		}
		s.keys = append(s.keys, key)
	}
	if signature != "" {
		text, err := os.ReadFile(signature)
		if err != nil {
			return err
		}
		s.published = string(text)
	}
	text, err := os.ReadFile(filepath.Join(root, publicKey))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		key, ok := parsed.(*ecdsa.PublicKey)
		if err != nil || !ok {
			return fmt.Errorf("%s is not a public key of ECDSA: %w", publicKey, err)
		}
		s.public = append(s.public, key)
	}
	return nil
}

// sign returns the signatures of a list. The same key and list make the same signature, so that two builds are equal.
func (s *signer) sign(list []byte) (string, error) {
	var text strings.Builder
	digest := sha256.Sum256(list)
	for _, key := range s.keys {
		// deterministic without a source of randomness: RFC 6979
		signature, err := key.Sign(nil, digest[:], crypto.SHA256)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&text, base64.StdEncoding.EncodeToString(signature))
	}
	return text.String(), s.check(list, text.String())
}

// check fails if a key of the tree finds no signature of its own: those who trust it could not verify the release.
func (s *signer) check(list []byte, signatures string) error {
	digest := sha256.Sum256(list)
	for _, key := range s.public {
		valid := false
		for line := range strings.Lines(signatures) {
			signature, err := base64.StdEncoding.DecodeString(line)
			valid = valid || err == nil && ecdsa.VerifyASN1(key, digest[:], signature)
		}
		if !valid {
			return fmt.Errorf("no signature is by the key in %s: sign with that key, or build the commit that was "+
				"signed", publicKey)
		}
	}
	return nil
}

// programs writes the list of the slim programs and its signatures into a folder, under a name. It writes nothing into
// an unsigned release.
func (r *release) programs(folder, name string) error {
	paths, err := filepath.Glob(filepath.Join(r.cli, "coder-*")) // sorted by name
	if err != nil {
		return err
	}
	list, err := sums(paths)
	if err != nil {
		return err
	}
	signatures := r.signer.published
	if r.signer.signs() {
		if signatures, err = r.signer.sign(list); err != nil {
			return err
		}
	} else if signatures == "" {
		return nil
	} else if err := r.signer.check(list, signatures); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, name), list, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+signed), []byte(signatures), 0o644)
}

// sums lists files as sha256sum does.
func sums(paths []string) ([]byte, error) {
	var list bytes.Buffer
	for _, path := range paths {
		hash := sha256.New()
		err := member{path: path}.open(func(file io.Reader, _ int64) error {
			_, err := io.Copy(hash, file)
			return err
		})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&list, "%x  %s\n", hash.Sum(nil), filepath.Base(path))
	}
	return list.Bytes(), nil
}

// newKey writes a new private key, which only its owner reads, and its public key beside it. A password encrypts the
// private key.
func newKey(path, passwordFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "PRIVATE KEY", Bytes: private}
	if passwordFile != "" {
		password, err := readPassword(passwordFile)
		if err != nil {
			return err
		}
		if block.Bytes, err = encrypted.Encrypt(private, password); err != nil {
			return err
		}
		block.Type = sealedKey
	}
	if err := writeNew(path, pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	return writeNew(path+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}

// writeNew writes a file that does not exist: a lost key cannot be made again.
func writeNew(path string, data []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

func readKey(path, passwordFile string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("the file has no PEM block")
	}
	if strings.HasPrefix(block.Type, "ENCRYPTED ") {
		if passwordFile == "" {
			return nil,
				errors.New("it is encrypted: name the file that holds its password with -password-file " +
					"(RELEASE_PASSWORD_FILE)")
		}
		password, err := readPassword(passwordFile)
		if err != nil {
			return nil, err
		}
		if block.Bytes, err = encrypted.Decrypt(block.Bytes, password); err != nil {
			return nil, fmt.Errorf("decrypt it: %w", err)
		}
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("it is not a key for ECDSA on P-256")
	}
	return key, nil
}

// readPassword reads the first line of a file.
func readPassword(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if len(line) == 0 {
		return nil, fmt.Errorf("%s has no password", path)
	}
	return line, nil
}
