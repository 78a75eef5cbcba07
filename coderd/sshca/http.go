package sshca

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/hostkeys"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/sshkey"
)

// maxSources bounds the networks of a certificate.
const maxSources = 32

func (s *Service) hostAuthority(w http.ResponseWriter, r *http.Request) error {
	keys, err := s.opts.Keys.HostCA().Keys(r.Context())
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, s.showHost(keys))
}

func (s *Service) showHost(keys hostkeys.Pair) sdk.SSHAuthority {
	shown := show(keys)
	shown.KnownHosts = append(shown.KnownHosts, s.knownHosts(keys.Current.PublicKey()))
	if keys.Previous != nil {
		shown.KnownHosts = append(shown.KnownHosts, s.knownHosts(keys.Previous.PublicKey()))
	}
	return shown
}

func show(keys hostkeys.Pair) sdk.SSHAuthority {
	shown := sdk.SSHAuthority{PublicKey: line(keys.Current.PublicKey()), KnownHosts: []string{}}
	if keys.Previous != nil {
		shown.PreviousPublicKey = line(keys.Previous.PublicKey())
	}
	return shown
}

func (s *Service) rotateHost(w http.ResponseWriter, r *http.Request) error {
	keys, err := s.rotate(r, sdk.SSHHostCA, s.opts.Keys.HostCA())
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, s.showHost(keys))
}

func (s *Service) rotateUser(w http.ResponseWriter, r *http.Request) error {
	keys, err := s.rotate(r, sdk.SSHUserCA, s.opts.Keys.UserCA())
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, show(keys))
}

// rotate makes a new key for an authority, and has all sessions looked at again: those of certificates that do not
// count any more end.
func (s *Service) rotate(r *http.Request, name string, authority *hostkeys.Authority) (keys hostkeys.Pair, err error) {
	ctx := r.Context()
	if err := httpapi.ActorFrom(ctx).May(rbac.Update, rbac.Of(rbac.Deployment, [16]byte{})); err != nil {
		return keys, err
	}
	var current, previous string
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if keys, err = authority.Rotate(ctx, q); err != nil {
			return err
		}
		if err := q.Notify(ctx, dbsqlc.NotifyParams{Channel: "users_revoked"}); err != nil {
			return fmt.Errorf("announce rotation: %w", err)
		}
		current = ssh.FingerprintSHA256(keys.Current.PublicKey())
		previous = ssh.FingerprintSHA256(keys.Previous.PublicKey())
		return audit.Record(ctx, q, audit.Entry{
			Name: name + "s", Fields: map[string]any{"fingerprint": current, "previous_fingerprint": previous},
		})
	})
	if err == nil {
		s.log.InfoContext(ctx, "SSH certificate authority rotated", "what", name, "key", current)
	}
	return keys, err
}

// create certifies a public key for the session or token that the request comes with.
func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	actor := httpapi.ActorFrom(ctx)
	if actor.FromWorkspace { // the template can read it, and no other credentials come from it either
		return fault.New(fault.Forbidden, "The session of a workspace gets no SSH certificate.").
			WithDetail("Sign in with: coder login <url>")
	}
	var req sdk.CreateSSHCertificateRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	key, err := sshkey.Parse(req.PublicKey)
	if f := fault.As(err); f != nil {
		return f.WithField("public_key", "must be a public key, on one line")
	}
	if err := check(&req); err != nil {
		return err
	}
	until, err := s.until(ctx, actor, req.TTL)
	if err != nil {
		return err
	}
	cert, err := s.certifyUser(ctx, actor, key.PublicKey, until, req.SourceAddresses)
	if err != nil {
		return err
	}
	shown := sdk.SSHCertificate{
		Certificate: line(cert), Fingerprint: key.Fingerprint(),
		Serial: strconv.FormatUint(cert.Serial, 10), KeyID: cert.KeyId,
		Principal: cert.ValidPrincipals[0], ValidAfter: unix(cert.ValidAfter), ValidBefore: unix(cert.ValidBefore),
	}
	fields := map[string]any{
		"owner": actor.Username, "key_id": actor.KeyID, "serial": shown.Serial, "valid_before": shown.ValidBefore.UTC(),
	}
	if len(req.SourceAddresses) > 0 {
		fields["source_addresses"] = req.SourceAddresses
	}
	entry := audit.Entry{ID: actor.UserID, Name: shown.Fingerprint, Fields: fields}
	if err := audit.Record(ctx, s.opts.DB.Queries, entry); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusCreated, shown)
}

// check checks a request, but for its key, and writes its networks in their usual form. Its error is a fault.
func check(req *sdk.CreateSSHCertificateRequest) error {
	f := fault.New(fault.Invalid, "The certificate cannot be made.")
	if req.TTL != 0 && (req.TTL < minLifetime || req.TTL > MaxLifetime) {
		f = f.WithField("ttl", fmt.Sprintf("must be between 1m and %dh", MaxLifetime/time.Hour))
	}
	if len(req.SourceAddresses) > maxSources {
		return f.WithField("source_addresses", fmt.Sprintf("must be at most %d", maxSources))
	}
	for i, text := range req.SourceAddresses {
		network, ok := parseSource(text)
		if !ok {
			f = f.WithField("source_addresses", "must be addresses or networks, such as 192.0.2.0/24")
			break
		}
		req.SourceAddresses[i] = network
	}
	if len(f.Fields) > 0 {
		return f
	}
	return nil
}

// parseSource returns an address or a network as the SSH library reads it.
func parseSource(text string) (string, bool) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap().String(), addr.Zone() == ""
	}
	network, err := netip.ParsePrefix(text)
	return network.Masked().String(), err == nil && !network.Addr().Is4In6()
}

// until returns when a certificate ends. A token's ends with it; a session goes on while it is used.
func (s *Service) until(ctx context.Context, actor rbac.Actor, ttl time.Duration) (time.Time, error) {
	if ttl == 0 {
		ttl = MaxLifetime
	}
	until := s.now().Add(ttl)
	key, err := s.opts.DB.GetAPIKey(ctx, dbsqlc.GetAPIKeyParams{ID: actor.KeyID, UserID: actor.UserID})
	if err != nil {
		return until, fmt.Errorf("read session: %w", err)
	}
	if key.Kind != "session" && key.ExpiresAt.Before(until) {
		until = key.ExpiresAt
	}
	return until, nil
}
