package sshca

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

const (
	// hostLifetime is how long a host key's certificate is valid. Agents ask for another one every day.
	hostLifetime = 30 * 24 * time.Hour
	// clockSkew is how far the clocks of clients may be behind.
	clockSkew = time.Hour
	// renewGateway is how long the gateway's certificate is presented: servers show the key of a rotation after that
	// time.
	renewGateway = time.Minute
	// askTimeout bounds the question for the authority's key.
	askTimeout = 10 * time.Second
	// domain is the last label of the names of agents.
	domain = ".coder"
)

// label matches what a name may consist of. A principal with an asterisk would stand for every host.
var label = lazyregexp.New(`^[a-z0-9_-]+$`)

// agentNames returns the names under which clients reach an agent: those of mesh addresses and of jumps through the
// gateway.
func agentNames(owner, workspace, agent string) []string {
	owner, workspace, agent = strings.ToLower(owner), strings.ToLower(workspace), strings.ToLower(agent)
	if !label().MatchString(owner) || !label().MatchString(workspace) {
		return nil
	}
	names := []string{workspace + domain, workspace + "." + owner + domain}
	if label().MatchString(agent) {
		names = append(names, agent+"."+workspace+"."+owner+domain)
	}
	return names
}

// CertifyAgent returns a certificate of the host key of a workspace's agent for the agent's names, in the wire format.
// It is nil for an agent whose names are none of a host.
func (s *Service) CertifyAgent(
	ctx context.Context, workspace uuid.UUID, owner, workspaceName, agent string,
) ([]byte, error) {
	names := agentNames(owner, workspaceName, agent)
	if len(names) == 0 {
		return nil, nil
	}
	key, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed(s.opts.Keys.Agent(workspace, agent)).Public())
	if err != nil {
		return nil, fmt.Errorf("read agent's SSH host key: %w", err)
	}
	cert, err := s.certifyHost(ctx, key, names)
	if err != nil {
		return nil, err
	}
	return cert.Marshal(), nil
}

// certifyHost certifies a host key for some names.
func (s *Service) certifyHost(ctx context.Context, key ssh.PublicKey, names []string) (*ssh.Certificate, error) {
	authority, err := s.opts.Keys.HostCA().Keys(ctx)
	if err != nil {
		return nil, err
	}
	now := s.now()
	return sign(authority.Current, &ssh.Certificate{
		CertType: ssh.HostCert, Key: key, KeyId: names[len(names)-1], ValidPrincipals: names,
		ValidAfter: uint64(now.Add(-clockSkew).Unix()), ValidBefore: uint64(now.Add(hostLifetime).Unix()),
	})
}

// HostKeys returns what the gateway presents: its host key, and the same with a certificate for the host name at which
// users reach it. While the authority cannot be asked, the certificate before stays, or there is none.
func (s *Service) HostKeys(ctx context.Context) []ssh.Signer {
	key := s.opts.Keys.Gateway()
	if s.host == "" {
		return []ssh.Signer{key}
	}
	if now := s.now(); s.expect(now) {
		certified, err := s.certifyGateway(ctx, key)
		if err != nil {
			s.log.WarnContext(ctx, "cannot certify the gateway's SSH host key, trying again in a minute", "err", err)
		} else {
			s.mu.Lock()
			s.gateway = certified
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gateway == nil {
		return []ssh.Signer{key}
	}
	return []ssh.Signer{s.gateway, key}
}

// expect reports whether the caller must make the gateway's certificate. Others have what there is meanwhile.
func (s *Service) expect(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.asked.IsZero() || now.Sub(s.asked) > renewGateway
	if due {
		s.asked = now
	}
	return due
}

func (s *Service) certifyGateway(ctx context.Context, key ssh.Signer) (ssh.Signer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout) // it is not for this client alone
	defer cancel()
	cert, err := s.certifyHost(ctx, key.PublicKey(), []string{strings.ToLower(s.host)})
	if err != nil {
		return nil, err
	}
	certified, err := ssh.NewCertSigner(cert, key)
	if err != nil {
		return nil, fmt.Errorf("use certificate: %w", err)
	}
	return certified, nil
}

// knownHosts returns the line that makes OpenSSH trust an authority's key for every host of the deployment.
func (s *Service) knownHosts(authority ssh.PublicKey) string {
	hosts := "*" + domain
	if s.host != "" {
		hosts += "," + s.host
		if s.port != "22" { // OpenSSH looks for the port first
			hosts += fmt.Sprintf(",[%s]:%s", s.host, s.port)
		}
	}
	return "@cert-authority " + hosts + " " + line(authority)
}

// line returns a public key as in a file whose name ends in .pub.
func line(key ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) }
