package regions

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// What the services that work at regions ask: who a proxy is, which agents its node may reach, and what it serves where.

// Proxy is a region proxy that has shown its token.
type Proxy struct {
	ID          uuid.UUID
	Name        string
	Fingerprint string // of the token
}

// Authenticate returns the proxy with a token. It returns the fault Unauthenticated for a token that is not valid.
func (s *Service) Authenticate(ctx context.Context, token secret.Token) (Proxy, error) {
	row, err := s.authenticate(ctx, token)
	return Proxy{ID: row.ID, Name: row.Name, Fingerprint: hex.EncodeToString(row.TokenHash)}, err
}

// Grant lets a proxy's node be introduced to an agent for a while.
func (s *Service) Grant(ctx context.Context, proxy Proxy, node, agent uuid.UUID, lifetime time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := s.opts.DB.GrantRegionVisa(ctx, dbsqlc.GrantRegionVisaParams{
		ProxyID: proxy.ID, NodeID: node, AgentID: agent, LifeSeconds: lifetime.Seconds(),
	}); err != nil {
		return fmt.Errorf("grant visa: %w", err)
	}
	return nil
}

// MayVisit returns a fault unless the proxy's token is still valid, and its node was granted the agent.
func (s *Service) MayVisit(ctx context.Context, proxy Proxy, node, agent uuid.UUID) error {
	hash, err := hex.DecodeString(proxy.Fingerprint)
	if err != nil {
		return fmt.Errorf("check visa: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	ok, err := s.opts.DB.HasRegionVisa(ctx, dbsqlc.HasRegionVisaParams{
		ProxyID: proxy.ID, NodeID: node, AgentID: agent, TokenHash: hash,
	})
	if err != nil {
		return fmt.Errorf("check visa: %w", err)
	}
	if !ok {
		return rbac.NotFound(rbac.Agent)
	}
	return nil
}

// Site is a place where a connected proxy serves apps.
type Site struct {
	Proxy uuid.UUID
	Name  string
	URL   *url.URL
	// WildcardHost is the pattern of the apps' hosts there; "" if there are none.
	WildcardHost string
}

// Sites returns where connected proxies serve apps.
func (s *Service) Sites(ctx context.Context) ([]Site, error) {
	rows, err := s.rows(ctx)
	if err != nil {
		return nil, err
	}
	var sites []Site
	for _, row := range rows {
		p := row.WorkspaceProxy
		if !row.Connected || !p.Apps {
			continue
		}
		base, err := url.Parse(p.Url)
		if err != nil {
			return nil, fmt.Errorf("parse URL of region %s: %w", p.Name, err)
		}
		sites = append(sites, Site{p.ID, p.Name, base, p.WildcardHost})
	}
	return sites, nil
}

// Gateway is where a connected proxy serves clients that are not browsers.
type Gateway struct {
	Proxy             uuid.UUID
	Name, DisplayName string
	Address           string // HOST:PORT
}

// SSHGateways returns the gateways of connected proxies for stock SSH clients.
func (s *Service) SSHGateways(ctx context.Context) ([]Gateway, error) {
	return s.gateways(ctx, func(p dbsqlc.WorkspaceProxy) string { return p.SshAddress })
}

// WireGuardGateways returns those for devices with a WireGuard app.
func (s *Service) WireGuardGateways(ctx context.Context) ([]Gateway, error) {
	return s.gateways(ctx, func(p dbsqlc.WorkspaceProxy) string { return p.WireguardAddress })
}

func (s *Service) gateways(ctx context.Context, address func(dbsqlc.WorkspaceProxy) string) (out []Gateway, err error) {
	rows, err := s.rows(ctx)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if p := row.WorkspaceProxy; row.Connected && address(p) != "" {
			out = append(out, Gateway{p.ID, p.Name, displayName(p), address(p)})
		}
	}
	return out, nil
}
