package extauth

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// The operations that the rest of the server performs on behalf of a user.

// Credential signs a user in at a provider.
type Credential struct {
	Provider    string
	Type        string // of the provider
	DisplayName string
	PageURL     string // where the user links an account
	Username    string // used with the token in HTTP basic authentication
	Token       secret.Token
	Extra       map[string]any // further properties of the token
}

// ForURL returns the user's credential for the service at a URL. Its token is empty if the user has no working link.
// ForURL returns the fault NotFound if no provider matches the URL.
func (s *Service) ForURL(ctx context.Context, user uuid.UUID, text string) (Credential, error) {
	for i := range s.opts.Providers {
		if p := &s.opts.Providers[i]; p.Matches(text) {
			return s.credential(ctx, user, p)
		}
	}
	return Credential{}, fault.New(fault.NotFound, "No login provider of this server covers %.200q.", text)
}

// ForProvider is like ForURL, by the provider's id.
func (s *Service) ForProvider(ctx context.Context, user uuid.UUID, id string) (Credential, error) {
	p := s.provider(id)
	if p == nil {
		return Credential{}, noProvider(id)
	}
	return s.credential(ctx, user, p)
}

func (s *Service) credential(ctx context.Context, user uuid.UUID, p *Provider) (Credential, error) {
	t, err := s.token(ctx, user, p)
	if f := fault.As(err); err != nil && (f == nil || f.Code != fault.Conflict) { // an unreadable link counts as none
		return Credential{}, err
	}
	return Credential{
		Provider: p.ID, Type: p.Type, DisplayName: p.DisplayName, PageURL: s.PageURL(p.ID), Username: p.username(),
		Token: t.Access, Extra: t.Extra,
	}, nil
}

// Describe returns the state of a user's links that a template version asks for. It asks the providers.
func (s *Service) Describe(
	ctx context.Context, user uuid.UUID, asked []dbsqlc.TemplateVersionExternalAuth,
) ([]sdk.TemplateVersionExternalAuth, error) {
	out := make([]sdk.TemplateVersionExternalAuth, len(asked))
	for i, a := range asked {
		out[i] = sdk.TemplateVersionExternalAuth{
			ID: a.ProviderID, DisplayName: a.ProviderID, Optional: a.Optional, AuthenticateURL: s.PageURL(a.ProviderID),
		}
		p := s.provider(a.ProviderID)
		if p == nil {
			continue
		}
		out[i].Type, out[i].DisplayName, out[i].DisplayIcon = p.Type, p.DisplayName, p.DisplayIcon
		c, err := s.credential(ctx, user, p)
		if err != nil {
			return nil, err
		}
		out[i].Authenticated = c.Token != ""
	}
	return out, nil
}

// Require returns the fault Conflict if a user lacks a link that a template version requires. It queries only the
// database, because it runs in a transaction.
func (s *Service) Require(ctx context.Context, q *dbsqlc.Queries, user, version uuid.UUID) error {
	asked, linked, err := s.links(ctx, q, user, version)
	if err != nil {
		return err
	}
	refused := fault.New(fault.Conflict, "")
	var urls, names []string
	for _, a := range asked {
		link, ok := linked[a.ProviderID]
		if a.Optional || ok && works(link) {
			continue
		}
		p := s.provider(a.ProviderID)
		if p == nil {
			return noProvider(a.ProviderID).WithField("external_auth", a.ProviderID+" is not configured")
		}
		names, urls = append(names, p.DisplayName), append(urls, s.PageURL(p.ID))
		refused.WithField("external_auth", p.ID+" is not linked")
	}
	if len(urls) == 0 {
		return nil
	}
	refused.Message = "This template needs a login with " + strings.Join(names, " and ") + "."
	return refused.WithDetail("Open %s and link the account, then try again.", strings.Join(urls, " and "))
}

func (s *Service) links(
	ctx context.Context, q *dbsqlc.Queries, user, version uuid.UUID,
) ([]dbsqlc.TemplateVersionExternalAuth, map[string]dbsqlc.ExternalAuthLink, error) {
	asked, err := q.ListTemplateVersionExternalAuth(ctx, version)
	if err != nil {
		return nil, nil, fmt.Errorf("list logins of the template: %w", err)
	}
	if len(asked) == 0 {
		return nil, nil, nil
	}
	rows, err := q.ListExternalAuthLinks(ctx, user)
	if err != nil {
		return nil, nil, fmt.Errorf("list links: %w", err)
	}
	linked := map[string]dbsqlc.ExternalAuthLink{}
	for _, row := range rows {
		linked[row.ProviderID] = row
	}
	return asked, linked, nil
}

// BuildTokens returns the access tokens that a template version asks for, by provider, as they are in the database. If
// required is set, it returns the fault Conflict if a token that the template requires is no longer valid.
func (s *Service) BuildTokens(
	ctx context.Context, q *dbsqlc.Queries, user, version uuid.UUID, required bool,
) (map[string]string, error) {
	asked, linked, err := s.links(ctx, q, user, version)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, a := range asked {
		link, ok := linked[a.ProviderID]
		if ok = ok && s.provider(a.ProviderID) != nil && link.Failure == "" && left(link) > 0; ok {
			t, err := s.open(link)
			if err == nil {
				out[a.ProviderID] = t.Access
				continue
			}
			_ = s.unreadable(link, err) // logs it
		}
		if required && !a.Optional {
			return nil, fault.New(fault.Conflict, "The login %q, which this template needs, was removed or expired before the build began.", a.ProviderID).
				WithDetail("Open %s, then start the workspace again.", s.PageURL(a.ProviderID))
		}
	}
	return out, nil
}

// Freshen renews a user's tokens that will expire soon, before a build that may use them is created. It leaves tokens
// that cannot be renewed now as they are: Require and BuildTokens decide.
func (s *Service) Freshen(ctx context.Context, user uuid.UUID) error {
	if len(s.opts.Providers)+len(s.opts.SignIn) == 0 {
		return nil
	}
	links, err := s.opts.DB.ListExternalAuthLinks(ctx, user)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, link := range links {
		p := s.keeper(link.ProviderID)
		if p == nil || link.Failure != "" || !link.Refreshable || link.ExpiresAt == nil || left(link) > queueTime {
			continue
		}
		_, err, _ := s.work.Do("refresh "+user.String()+" "+p.ID, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workTimeout)
			defer cancel()
			link, _, err := s.refresh(ctx, p, link)
			return link.Failure != "", err
		})
		if err != nil {
			s.log.WarnContext(ctx, "cannot renew external token", "user", user, "provider", p.ID, "err", describe(err))
		}
	}
	return nil
}
