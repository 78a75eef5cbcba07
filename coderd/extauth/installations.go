package extauth

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	// maxInstallations is how many installations of an app are shown: one page of GitHub's answer.
	maxInstallations = 100
	// maxAccountName bounds the names of accounts, in bytes.
	maxAccountName = 256
)

// githubInstallations is the answer of GitHub's API to GET /user/installations: where its GitHub App is installed, of
// the places that the token's user reaches. Tokens of OAuth applications are refused.
type githubInstallations struct {
	Installations []struct {
		ID      int64         `json:"id"`
		URL     string        `json:"html_url"` // where it is configured
		Account githubAccount `json:"account"`
	} `json:"installations"`
}

type githubAccount struct {
	ID     int64  `json:"id"`
	Login  string `json:"login"`
	Name   string `json:"name"`
	Avatar string `json:"avatar_url"`
	URL    string `json:"html_url"`
}

// installations asks a provider where its app is installed for the holder of a token. ok is false if the provider has
// no such apps, or does not say so for this token.
func (s *Service) installations(
	ctx context.Context, p *Provider, t secret.Token,
) (out []sdk.ExternalAuthAppInstallation, ok bool) {
	out = []sdk.ExternalAuthAppInstallation{}
	if p.InstallationsURL == "" || t == "" {
		return out, false
	}
	var answer githubInstallations
	err := s.Ask(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.InstallationsURL, nil)
		if err != nil {
			return err
		}
		q := req.URL.Query()
		q.Set("per_page", fmt.Sprint(maxInstallations))
		req.URL.RawQuery = q.Encode()
		req.Header.Set("Authorization", "Bearer "+t.Reveal())
		req.Header.Set("Accept", "application/json")
		resp, err := s.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answered %s", p.InstallationsURL, resp.Status)
		}
		return json.NewDecoder(resp.Body).Decode(&answer)
	})
	if err != nil {
		s.log.DebugContext(ctx, "cannot list installations of an app", "provider", p.ID, "err", err)
		return out, false
	}
	for _, i := range answer.Installations[:min(len(answer.Installations), maxInstallations)] {
		out = append(out, sdk.ExternalAuthAppInstallation{
			ID: i.ID, ConfigureURL: webURL(i.URL), Account: sdk.ExternalAuthUser{
				ID: i.Account.ID, Login: accountName(i.Account.Login), Name: accountName(i.Account.Name),
				AvatarURL: webURL(i.Account.Avatar), ProfileURL: webURL(i.Account.URL),
			},
		})
	}
	return out, true
}

// webURL returns an address that a provider gave, or "" if a page must not link to it.
func webURL(text string) string {
	if _, err := origin(text); err != nil || len(text) > maxURL {
		return ""
	}
	return database.Visible(text)
}

func accountName(text string) string { return database.Visible(text[:min(len(text), maxAccountName)]) }
