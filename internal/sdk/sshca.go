package sdk

import (
	"context"
	"net/http"
	"time"
)

// SSHAuthority is a certificate authority for SSH.
type SSHAuthority struct {
	PublicKey         string `json:"public_key"`          // as in a file whose name ends in .pub
	PreviousPublicKey string `json:"previous_public_key"` // which counts too, until the next rotation; "": none
	// KnownHosts are the lines for OpenSSH's known_hosts, one for each key. The authority for users has none.
	KnownHosts []string `json:"known_hosts"`
}

// The authorities for SSH, as RotateSSHAuthority names them.
const (
	SSHUserCA = "user"
	SSHHostCA = "host"
)

// CreateSSHCertificateRequest asks for a certificate of a public key, with which the caller signs in at the SSH
// gateway.
type CreateSSHCertificateRequest struct {
	// PublicKey is the line of a file such as id_ed25519.pub. A private key is refused.
	PublicKey string        `json:"public_key"`
	TTL       time.Duration `json:"ttl,omitempty"` // nanoseconds; 0: as long as possible
	// SourceAddresses are addresses and networks, such as 192.0.2.0/24, from which alone the certificate signs in.
	// Empty: from anywhere.
	SourceAddresses []string `json:"source_addresses,omitempty"`
}

// SSHCertificate is a certificate of a user's key. It is valid no longer than the session or token that asked for it.
type SSHCertificate struct {
	Certificate string    `json:"certificate"` // as in a file whose name ends in -cert.pub
	Fingerprint string    `json:"fingerprint"` // of the key
	Serial      string    `json:"serial"`
	KeyID       string    `json:"key_id"`
	Principal   string    `json:"principal"` // the user's id
	ValidAfter  time.Time `json:"valid_after"`
	ValidBefore time.Time `json:"valid_before"`
}

// SSHHostAuthority returns the authority that certifies the gateway's and workspaces' host keys.
func (c *Client) SSHHostAuthority(ctx context.Context) (SSHAuthority, error) {
	return get[SSHAuthority](ctx, c, "deployment/ssh-host-ca")
}

// RotateSSHAuthority makes a new key for an authority: SSHUserCA or SSHHostCA. The present one counts until the next
// rotation.
func (c *Client) RotateSSHAuthority(ctx context.Context, authority string) (SSHAuthority, error) {
	return send[SSHAuthority](ctx, c, http.MethodPost, "deployment/ssh-"+seg(authority)+"-ca/rotate", nil)
}

func (c *Client) CreateSSHCertificate(ctx context.Context, req CreateSSHCertificateRequest) (SSHCertificate, error) {
	return send[SSHCertificate](ctx, c, http.MethodPost, "ssh-certificates", req)
}
