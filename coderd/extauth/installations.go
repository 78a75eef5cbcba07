package extauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

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
	Slug   string `json:"slug"` // of an enterprise, which has no login
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
		body, err := io.ReadAll(resp.Body) // which the client bounds
		if err != nil {
			return err
		}
		out, err = parseInstallations(body)
		return err
	})
	if err != nil {
		s.log.DebugContext(ctx, "cannot list installations of an app", "provider", p.ID, "err", err)
		return []sdk.ExternalAuthAppInstallation{}, false
	}
	return out, true
}

// parseInstallations reads the answer of a provider: the first maxInstallations that have an id of their own and an
// account with a name. An answer without a list, even an empty one, is an error: the provider does not say.
func parseInstallations(body []byte) ([]sdk.ExternalAuthAppInstallation, error) {
	var answer githubInstallations
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read installations: %w", err)
	}
	if answer.Installations == nil {
		return nil, errors.New("the answer has no list of installations")
	}
	out, seen := []sdk.ExternalAuthAppInstallation{}, map[int64]bool{}
	for _, i := range answer.Installations {
		login := accountName(cmp.Or(i.Account.Login, i.Account.Slug))
		if i.ID <= 0 || seen[i.ID] || login == "" {
			continue
		}
		if len(out) == maxInstallations {
			break
		}
		seen[i.ID] = true
		out = append(out, sdk.ExternalAuthAppInstallation{
			ID: i.ID, ConfigureURL: webURL(i.URL), Account: sdk.ExternalAuthUser{
				ID: i.Account.ID, Login: login, Name: accountName(i.Account.Name),
				AvatarURL: webURL(i.Account.Avatar), ProfileURL: webURL(i.Account.URL),
			},
		})
	}
	return out, nil
}

// webURL returns an address that a provider gave, or "" if a page must not link to it.
func webURL(text string) string {
	if _, err := origin(text); err != nil || len(text) > maxURL {
		return ""
	}
	return database.Visible(text)
}

// accountName returns the name of an account at a provider, without characters that change how what is beside them is
// shown.
func accountName(text string) string {
	text = strings.TrimSpace(text[:min(len(text), maxAccountName)])
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
