package sshca

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// MaxLifetime is how long a user's certificate is valid, at most and by default.
	MaxLifetime = 12 * time.Hour
	minLifetime = time.Minute
	// serverSkew is how far the clocks of the deployment's servers may be apart.
	serverSkew = time.Minute

	keyIDPrefix = "session:"
	// sourceAddress is the only critical option that is known. The SSH library compares it with the client's address.
	sourceAddress = "source-address"
)

// extensions are what ssh-keygen puts into certificates. The gateway allows what the workspace allows.
var extensions = map[string]string{
	"permit-X11-forwarding": "", "permit-agent-forwarding": "", "permit-port-forwarding": "", "permit-pty": "",
}

// certifyUser certifies a user's key for a session or token.
func (s *Service) certifyUser(
	ctx context.Context, actor rbac.Actor, key ssh.PublicKey, until time.Time, sources []string,
) (*ssh.Certificate, error) {
	authority, err := s.opts.Keys.UserCA().Keys(ctx)
	if err != nil {
		return nil, err
	}
	cert := &ssh.Certificate{
		CertType: ssh.UserCert, Key: key,
		KeyId: keyIDPrefix + actor.KeyID, ValidPrincipals: []string{actor.UserID.String()},
		ValidAfter: uint64(s.now().Add(-serverSkew).Unix()), ValidBefore: uint64(until.Unix()),
		Permissions: ssh.Permissions{Extensions: extensions},
	}
	if len(sources) > 0 {
		cert.CriticalOptions = map[string]string{sourceAddress: strings.Join(sources, ",")}
	}
	return sign(authority.Current, cert)
}

// sign completes a certificate.
func sign(authority ssh.Signer, cert *ssh.Certificate) (*ssh.Certificate, error) {
	var serial [8]byte
	rand.Read(serial[:]) // never fails
	cert.Serial = binary.BigEndian.Uint64(serial[:])
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	return cert, nil
}

// SignIn returns whom a certificate signs in now, with the rights of the session or token that asked for it. The caller
// must know that the client has the certified key before it acts on the answer, and give the SSH library the
// certificate's critical options, which restrict the client's address. Its faults are those of Holder.
func (s *Service) SignIn(ctx context.Context, cert *ssh.Certificate) (rbac.Actor, error) {
	now := s.now()
	if now.Before(unix(cert.ValidAfter)) || !now.Before(unix(cert.ValidBefore)) {
		return rbac.Actor{}, refused("This SSH certificate is not valid at this time.")
	}
	return s.Holder(ctx, cert)
}

// unix returns a time of a certificate. One that is later than any certificate of ours is the zero time, which no
// certificate is valid at.
func unix(seconds uint64) time.Time {
	if seconds >= 1<<40 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

// Holder is SignIn for a connection that a certificate has signed in: the certificate may have expired since, as with
// OpenSSH's sshd. Its faults are Unauthenticated, if the certificate is not one of ours, or what it stands for has
// ended, and Unavailable.
func (s *Service) Holder(ctx context.Context, cert *ssh.Certificate) (rbac.Actor, error) {
	if cert.CertType != ssh.UserCert || len(cert.ValidPrincipals) != 1 {
		return rbac.Actor{}, refused("This SSH certificate is not a user's.")
	}
	for option := range cert.CriticalOptions {
		if option != sourceAddress {
			return rbac.Actor{}, refused("This SSH certificate has a critical option that the server does not know.")
		}
	}
	user, err := uuid.Parse(cert.ValidPrincipals[0])
	session, ours := strings.CutPrefix(cert.KeyId, keyIDPrefix)
	if err != nil || !ours || user.String() != cert.ValidPrincipals[0] {
		return rbac.Actor{}, refused("This SSH certificate is not a user's.")
	}
	if err := s.verify(ctx, cert); err != nil {
		return rbac.Actor{}, err
	}
	return s.opts.Accounts.Session(ctx, session, user)
}

// verify returns a fault unless the user CA has signed a certificate, with its present or its previous key.
func (s *Service) verify(ctx context.Context, cert *ssh.Certificate) error {
	authority, err := s.opts.Keys.UserCA().Keys(ctx)
	if err != nil {
		return err
	}
	for _, key := range []ssh.Signer{authority.Current, authority.Previous} {
		if key == nil || !bytes.Equal(key.PublicKey().Marshal(), cert.SignatureKey.Marshal()) {
			continue
		}
		// The library's check of a certificate: here for its signature. The rest has been checked, or is checked
		// elsewhere.
		checker := ssh.CertChecker{
			SupportedCriticalOptions: []string{sourceAddress}, Clock: func() time.Time { return unix(cert.ValidAfter) },
		}
		if checker.CheckCert(cert.ValidPrincipals[0], cert) != nil {
			break
		}
		return nil
	}
	return refused("This SSH certificate is not signed by this deployment.")
}

func refused(message string) error {
	return fault.New(fault.Unauthenticated, "%s", message).WithDetail("Make another one with: coder ssh-cert")
}
