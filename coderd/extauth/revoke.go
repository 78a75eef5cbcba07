package extauth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

// taken returns the tokens of a link that the transaction of q is about to delete, so that they can be revoked at their
// provider p. It waits for a renewal that is under way: the provider's last tokens are those to revoke. Without a way
// to revoke, or a link that can be read, there are none.
func (s *Service) taken(ctx context.Context, q *dbsqlc.Queries, p *Provider, key linkKey) (tokens, error) {
	if p == nil || p.RevokeURL == "" {
		return tokens{}, nil
	}
	link, err := q.LockExternalAuthLink(ctx, dbsqlc.LockExternalAuthLinkParams{
		UserID: key.user, ProviderID: key.provider,
	})
	if database.IsNotFound(err) {
		return tokens{}, nil
	}
	if err != nil {
		return tokens{}, err
	}
	if r := s.renewal(link); r != nil {
		return tokens{Access: r.AccessToken, Refresh: r.RefreshToken}, nil
	}
	t, err := s.open(link)
	if err != nil {
		s.log.WarnContext(ctx, "cannot read external login", "user", key.user, "provider", key.provider, "err", err)
		return tokens{}, nil
	}
	return t, nil
}

// revoke has the provider revoke tokens. Its error names no token.
func (s *Service) revoke(ctx context.Context, p *Provider, t tokens) error {
	for _, token := range []struct{ text, hint string }{{t.Refresh, "refresh_token"}, {t.Access, "access_token"}} {
		if token.text == "" || token.hint == "refresh_token" && kinds[p.Type].ownAPI {
			continue
		}
		err := s.Ask(ctx, func(ctx context.Context) error {
			req, err := p.revocation(ctx, token.text, token.hint)
			if err != nil {
				return err
			}
			resp, err := s.client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode < 200 || resp.StatusCode > 299 {
				return fmt.Errorf("%s answered %d", p.RevokeURL, resp.StatusCode)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// revocation is the request that revokes a token: that of RFC 7009, or of GitHub's "Delete an app token".
func (p *Provider) revocation(ctx context.Context, token, hint string) (*http.Request, error) {
	kind := kinds[p.Type]
	if kind.ownAPI {
		body, err := json.Marshal(map[string]string{"access_token": token})
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, p.RevokeURL, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.SetBasicAuth(p.ClientID, p.ClientSecret.Reveal())
		req.Header.Set("Accept", "application/vnd.github+json")
		return req, nil
	}
	form := url.Values{"token": {token}, "token_type_hint": {hint}}
	if kind.style != oauth2.AuthStyleInHeader {
		form.Set("client_id", p.ClientID)
		if p.ClientSecret != "" {
			form.Set("client_secret", p.ClientSecret.Reveal())
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.RevokeURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	if kind.style == oauth2.AuthStyleInHeader {
		req.SetBasicAuth(url.QueryEscape(p.ClientID), url.QueryEscape(p.ClientSecret.Reveal()))
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return req, nil
}
