package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

const (
	// AgentLifetime is how long a workspace's token is valid. Agents get another one at any time.
	AgentLifetime = 15 * time.Minute
	// BuildLifetime is how long a build's token is valid. Builds get one.
	BuildLifetime = time.Hour
	// clockSkew is how far the clocks of verifiers may be behind.
	clockSkew = time.Minute
)

// The kinds of holders, with which subjects begin.
const (
	kindAgent = "agent"
	kindBuild = "build"
)

// Token is a token and its end.
type Token struct {
	Token   secret.Token
	Expires time.Time
}

// claims are what a token says. Ids never change; names do, and may be given to others.
type claims struct {
	Issuer    string `json:"iss"`
	Subject   string `json:"sub"`
	Audience  string `json:"aud"` // one, as all verifiers understand it
	Expiry    int64  `json:"exp"`
	NotBefore int64  `json:"nbf"`
	IssuedAt  int64  `json:"iat"`
	ID        string `json:"jti"`

	Kind           string    `json:"kind"`
	OrganizationID uuid.UUID `json:"organization_id"`
	Organization   string    `json:"organization"`
	TemplateID     uuid.UUID `json:"template_id"`
	Template       string    `json:"template"`
	WorkspaceID    uuid.UUID `json:"workspace_id"`
	Workspace      string    `json:"workspace"`
	Agent          string    `json:"agent,omitempty"`
	BuildNumber    int32     `json:"build_number"`
	Transition     string    `json:"build_transition"`
	// The owner's are in a build's token only if the owner consents: other users can begin builds.
	OwnerID    string `json:"owner_id,omitempty"`
	Owner      string `json:"owner,omitempty"`
	OwnerEmail string `json:"owner_email,omitempty"`
}

// Build is what a token of a build says.
type Build struct {
	OrganizationID, TemplateID, WorkspaceID uuid.UUID
	Organization, Template, Workspace       string
	Number                                  int32
	Transition                              sdk.Transition
	Owner                                   *Owner // nil if the owner did not consent, and for prebuilt workspaces
	Audience                                string // that the template allows
}

// Owner is who owns a workspace.
type Owner struct {
	ID          uuid.UUID
	Name, Email string
}

// ForAgent returns a token for an agent. The agent must be admitted, and may have the credentials of its workspace's
// owner. It returns a fault: Invalid for what cannot be an audience, Forbidden for one that the template does not
// allow, with the remedy.
func (s *Service) ForAgent(ctx context.Context, q *dbsqlc.Queries, agent uuid.UUID, audience string) (Token, error) {
	if err := CheckAudience(audience); err != nil {
		return Token{}, err
	}
	row, err := q.GetIdentityOfAgent(ctx, agent)
	if err != nil {
		return Token{}, fmt.Errorf("read agent's identity: %w", err)
	}
	if !slices.Contains(row.IdentityAudiences, audience) {
		allowed := strings.Join(append(row.IdentityAudiences, audience), ",")
		return Token{}, fault.New(fault.Forbidden,
			"The template %q does not allow its workspaces ID tokens for %q.", row.Template, audience).
			WithDetail("An admin of the template allows them with: coder templates edit %s --identity-audiences %s",
				shell.POSIX(row.Template), shell.POSIX(allowed))
	}
	subject := fmt.Sprintf("%s:organization:%s:template:%s:owner:%s:workspace:%s",
		kindAgent, row.OrganizationID, row.TemplateID, row.OwnerID, row.WorkspaceID)
	return s.issue(ctx, q, AgentLifetime, claims{
		Subject: subject, Audience: audience, Kind: kindAgent,
		OrganizationID: row.OrganizationID, Organization: row.Organization, TemplateID: row.TemplateID,
		Template:    row.Template,
		WorkspaceID: row.WorkspaceID, Workspace: row.Workspace, Agent: row.Agent, BuildNumber: row.BuildNumber,
		Transition: row.Transition,
		OwnerID:    row.OwnerID.String(), Owner: row.Owner, OwnerEmail: row.OwnerEmail,
	})
}

// ForBuild returns a token for a build. Its subject is never that of an agent, so that users of a workspace cannot do
// what its template may.
func (s *Service) ForBuild(ctx context.Context, q *dbsqlc.Queries, b Build) (Token, error) {
	subject := fmt.Sprintf("%s:organization:%s:template:%s:workspace:%s",
		kindBuild, b.OrganizationID, b.TemplateID, b.WorkspaceID)
	c := claims{
		Subject: subject, Audience: b.Audience, Kind: kindBuild,
		OrganizationID: b.OrganizationID, Organization: b.Organization, TemplateID: b.TemplateID, Template: b.Template,
		WorkspaceID: b.WorkspaceID, Workspace: b.Workspace,
		BuildNumber: b.Number, Transition: string(b.Transition),
	}
	if b.Owner != nil {
		c.OwnerID, c.Owner, c.OwnerEmail = b.Owner.ID.String(), b.Owner.Name, b.Owner.Email
	}
	return s.issue(ctx, q, BuildLifetime, c)
}

// issue completes and signs claims.
func (s *Service) issue(ctx context.Context, q *dbsqlc.Queries, lifetime time.Duration, c claims) (Token, error) {
	k, err := s.load(ctx, q)
	if err != nil {
		return Token{}, err
	}
	now := s.now().Truncate(time.Second)
	expires := now.Add(lifetime)
	c.Issuer, c.ID = s.issuer, uuid.NewString()
	c.IssuedAt, c.NotBefore, c.Expiry = now.Unix(), now.Add(-clockSkew).Unix(), expires.Unix()
	signing := jose.SigningKey{Algorithm: jose.RS256, Key: k.Current}
	signer, err := jose.NewSigner(signing, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return Token{}, fmt.Errorf("sign ID token: %w", err)
	}
	text, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		return Token{}, fmt.Errorf("sign ID token: %w", err)
	}
	return Token{secret.Token(text), expires}, nil
}
