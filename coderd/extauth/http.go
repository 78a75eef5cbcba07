package extauth

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// list reports what is known without asking a provider.
func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	actor := httpapi.ActorFrom(r.Context())
	if err := actor.May(rbac.Read, rbac.Of(rbac.ExternalAuth, actor.UserID)); err != nil {
		return err
	}
	links, err := s.opts.DB.ListExternalAuthLinks(r.Context(), actor.UserID)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var out sdk.ExternalAuths
	for _, p := range s.opts.Providers {
		out.Providers = append(out.Providers, sdk.ExternalAuthProvider{
			ID: p.ID, Type: p.Type, DisplayName: p.DisplayName, DisplayIcon: p.DisplayIcon, AllowRefresh: !p.NoRefresh,
			AllowValidate: p.ValidateURL != "",
			Device:        p.Device, SupportsRevocation: p.RevokeURL != "",
		})
	}
	for _, link := range links {
		if strings.HasPrefix(link.ProviderID, SignInPrefix) {
			continue
		}
		shown := sdk.ExternalAuthLink{
			ProviderID: link.ProviderID, CreatedAt: link.CreatedAt, UpdatedAt: link.UpdatedAt,
			HasRefreshToken: link.Refreshable,
			Authenticated:   works(link), ValidateError: link.Failure,
		}
		if link.ExpiresAt != nil {
			shown.Expires = *link.ExpiresAt
		}
		out.Links = append(out.Links, shown)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// works reports whether a link has a token, or can obtain one, as far as the database knows.
func works(link dbsqlc.ExternalAuthLink) bool {
	return link.Failure == "" && (link.Refreshable || left(link) > 0)
}

// get reports a link after asking the provider.
func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	actor := httpapi.ActorFrom(r.Context())
	if err := actor.May(rbac.Read, rbac.Of(rbac.ExternalAuth, actor.UserID)); err != nil {
		return err
	}
	p := s.provider(r.PathValue("externalauth"))
	if p == nil {
		return noProvider(r.PathValue("externalauth"))
	}
	out := sdk.ExternalAuth{
		Device: p.Device, DisplayName: p.DisplayName, DisplayIcon: p.DisplayIcon, SupportsRevocation: p.RevokeURL != "",
	}
	t, err := s.token(r.Context(), actor.UserID, p)
	if f := fault.As(err); f != nil && f.Code == fault.Conflict {
		out.ValidateError = f.Error()
	} else if err != nil {
		return err
	}
	out.Authenticated = t.Access != ""
	if t.Failure != "" {
		out.ValidateError = t.Failure
	}
	out.AppInstallURL = p.InstallURL
	out.Installations, out.AppInstallable = s.installations(r.Context(), p, t.Access)
	return httpapi.Write(w, http.StatusOK, out)
}

// unlink deletes a link, even one with a provider that is no longer configured, and has its provider revoke the tokens.
// The link is gone even if the provider refuses or is away.
func (s *Service) unlink(w http.ResponseWriter, r *http.Request) error {
	actor, id := httpapi.ActorFrom(r.Context()), r.PathValue("externalauth")
	if err := actor.May(rbac.Delete, rbac.Of(rbac.ExternalAuth, actor.UserID)); err != nil {
		return err
	}
	if strings.HasPrefix(id, SignInPrefix) {
		return noProvider(id)
	}
	p, had := s.provider(id), tokens{}
	err := s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) (err error) {
		if had, err = s.taken(r.Context(), q, p, linkKey{actor.UserID, id}); err != nil {
			return err
		}
		n, err := q.DeleteExternalAuthLink(r.Context(), dbsqlc.DeleteExternalAuthLinkParams{
			UserID: actor.UserID, ProviderID: id,
		})
		if err == nil && n == 0 {
			return fault.New(fault.NotFound, "You have no link with %.64q.", id)
		}
		if err != nil {
			return err
		}
		return audit.Record(r.Context(), q, audit.Entry{ID: actor.UserID, Name: id})
	})
	if err != nil {
		return fmt.Errorf("delete link: %w", err)
	}
	s.log.InfoContext(r.Context(), "external login deleted", "user", actor.UserID, "provider", id)
	var out sdk.UnlinkExternalAuthResponse
	if had.Access != "" {
		// Not for as long as the client waits: the tokens are nowhere else.
		err := s.revoke(context.WithoutCancel(r.Context()), p, had)
		if out.TokenRevoked = err == nil; err != nil {
			s.log.WarnContext(r.Context(), "cannot revoke external token", "user", actor.UserID, "provider", id, "err",
				err)
			out.TokenRevocationError = p.DisplayName + " did not revoke the token. Revoke it in your settings there."
		}
	}
	return httpapi.Write(w, http.StatusOK, out)
}
