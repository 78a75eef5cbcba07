package account

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/sshkey"
)

func sshCertCmd(g *global.Flags) *cobra.Command {
	var key, ttl string
	var sources []string
	cmd := &cobra.Command{
		Use:   "ssh-cert",
		Short: "Get a certificate for an SSH key, to sign in at the SSH gateway for some hours",
		Long: `Get a certificate for an SSH key. It signs you in at the server's SSH gateway for at most 12 hours, without a
registered key. It can do what the session or token can that this command uses, and ends with it. The server gets the
public key only.

The certificate of the key FILE is written to FILE-cert.pub, where OpenSSH finds it. If there is neither FILE nor
FILE.pub, a new ed25519 key without a passphrase is made there. For a key in an SSH agent, FILE.pub is enough.
"--key -" reads a public key from standard input, and writes the certificate to standard output. Without --key, the
key is the only one in ~/.ssh with a usual name, such as id_ed25519.`,
		Example: `  coder ssh-cert
  coder ssh-cert --key ~/.ssh/ci --ttl 1h
  ssh-add -L | head -n 1 | coder ssh-cert --key - > ~/.ssh/agent-cert.pub`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("ttl") && ttl == "" {
				empty := fault.New(fault.Invalid, "--ttl is empty, and would not limit the certificate")
				return exit.Try(empty, "Name a duration such as 1h, or leave out --ttl")
			}
			if cmd.Flags().Changed("key") && key == "" {
				empty := fault.New(fault.Invalid, "--key is empty")
				return exit.Try(empty, "Name a file such as ~/.ssh/id_ed25519, or leave out --key")
			}
			req := sdk.CreateSSHCertificateRequest{SourceAddresses: sources}
			var err error
			if req.TTL, err = flags.ParseDuration(ttl); err != nil {
				return err
			}
			return runSSHCert(g, cmd, key, req)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "file of the key; - reads a public key from standard input")
	cmd.Flags().StringVar(&ttl, "ttl", "", "lifetime of the certificate, such as 1h (default 12h, the longest)")
	cmd.Flags().StringArrayVar(&sources, "source-address", nil,
		"address or network from which alone it signs in, as the gateway sees it; may be repeated")
	return cmd
}

// certKey is the command that takes the file of a key.
const certKey = "coder ssh-cert --key"

func runSSHCert(g *global.Flags, cmd *cobra.Command, named string, req sdk.CreateSSHCertificateRequest) error {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return err
	}
	file := named
	if named == "" {
		if file, err = onlyPublicKey(certKey+" ~/.ssh/id_ed25519", certKey); err != nil {
			return err
		}
	}
	file = strings.TrimSuffix(file, ".pub")
	if req.PublicKey, err = keyToCertify(g, file); err != nil {
		return err
	}
	made, err := client.CreateSSHCertificate(cmd.Context(), req)
	if err != nil {
		return err
	}
	line, err := checkedCertificate(req.PublicKey, made.Certificate)
	if err != nil {
		return err
	}
	until := made.ValidBefore.Local().Format("2006-01-02 15:04 MST")
	if named == "-" {
		if _, err := g.Streams().Out.Write(line); err != nil {
			return fmt.Errorf("write certificate: %w", err)
		}
		fmt.Fprintf(g.Streams().Err, "The certificate of %s signs you in until %s.\n", made.Fingerprint, until)
		return nil
	}
	if err := config.WriteFile(file+"-cert.pub", line, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(g.Streams().Err, "Wrote %s-cert.pub. The key %s signs you in until %s.\n",
		file, made.Fingerprint, until)
	// Where to connect is a hint: an older server, or one without a gateway, has none.
	if gateway, err := client.SSHGateway(cmd.Context()); err == nil && gateway.Enabled {
		if host, port, err := net.SplitHostPort(gateway.Address); err == nil {
			fmt.Fprintf(g.Streams().Err, "Connect with: ssh -i %s -p %s WORKSPACE@%s\n",
				shell.Word(file), shell.Word(port), shell.Word(host))
		}
	}
	return nil
}

// keyToCertify returns the public key of a file, without .pub, or of standard input for "-". It makes the key if there
// is none.
func keyToCertify(g *global.Flags, file string) (string, error) {
	if file == "-" {
		_, text, err := readPublicKey(g, []string{"-"})
		if err != nil {
			return "", err
		}
		return checkedKey("-", text, certKey)
	}
	text, err := readStart(file + ".pub")
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(file); err == nil {
			return "", exit.Try(fault.New(fault.Invalid, "there is no public key beside %s", file),
				"ssh-keygen -y -f %s > %s", shell.Word(file), shell.Word(file+".pub"))
		}
		return makeKey(g, file)
	}
	if err != nil {
		return "", fault.New(fault.Invalid, "cannot read the file of the public key: %w", cause(err))
	}
	return checkedKey(file+".pub", string(text), certKey)
}

// makeKey makes an ed25519 key, as ssh-keygen does, and returns its public half.
func makeKey(g *global.Flags, file string) (string, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return "", fmt.Errorf("make key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return "", fmt.Errorf("make key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "coder ssh-cert")
	if err != nil {
		return "", fmt.Errorf("make key: %w", err)
	}
	public := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))) + " coder ssh-cert\n"
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fault.New(fault.Invalid, "cannot make the folder of the key: %w", cause(err))
	}
	// The private half is written first: a public half alone would stand for a key in an SSH agent.
	if err := config.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		return "", err
	}
	if err := config.WriteFile(file+".pub", []byte(public), 0o644); err != nil {
		return "", err
	}
	fmt.Fprintf(g.Streams().Err, "Made the key %s, without a passphrase.\n", file)
	return strings.TrimSpace(public), nil
}

// maxCertificate bounds a certificate, in bytes.
const maxCertificate = 16 << 10

// checkedCertificate returns the line for the file of a certificate that the server made, if it is one of the key.
func checkedCertificate(public, certificate string) ([]byte, error) {
	key, err := sshkey.Parse(public)
	if err != nil {
		return nil, err
	}
	bad := fault.New(fault.Internal, "The server's answer is not a certificate of the key. No file was written.")
	if len(certificate) > maxCertificate {
		return nil, bad
	}
	parsed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(certificate))
	if err != nil {
		return nil, bad
	}
	cert, ok := parsed.(*ssh.Certificate)
	if !ok || cert.CertType != ssh.UserCert || !bytes.Equal(cert.Key.Marshal(), key.Marshal()) {
		return nil, bad
	}
	line := bytes.TrimSpace(ssh.MarshalAuthorizedKey(cert))
	return append(line, " "+cmp.Or(key.Comment, "coder ssh-cert")+"\n"...), nil
}
