package extauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// margin is how long an access token must remain valid to be handed out.
const margin = time.Minute

// Reasons why a link is unusable, as its owner reads them.
const (
	failureRefused = "The service no longer accepts the token."
	failureRefresh = "The service no longer renews the token."
)

// tokens is the encrypted content of a link.
type tokens struct {
	Access  string `json:"access"`
	Refresh string `json:"refresh,omitempty"`
	// Extra has the properties of the provider's ExtraKeys.
	Extra map[string]any `json:"extra,omitempty"`
}

// maxExtra bounds the extra properties of a link, in bytes of JSON.
const maxExtra = 8 << 10

// Token is a user's access token. Access is empty if the user has no link, or none that works.
type Token struct {
	Access  secret.Token
	Extra   map[string]any // further properties of it
	Failure string         // why a link does not work; "" without a link
}

// seal encrypts the tokens that a provider has issued. Extra properties that it has left out stay as they were before.
func (s *Service) seal(
	user uuid.UUID, p *Provider, got *oauth2.Token, before map[string]any,
) (sealed []byte, refreshable bool, expires *time.Time, err error) {
	t := tokens{Access: got.AccessToken, Extra: s.extra(p, got, before)}
	if !p.NoRefresh {
		t.Refresh = got.RefreshToken
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, false, nil, fmt.Errorf("encode tokens: %w", err)
	}
	if !got.Expiry.IsZero() {
		expires = &got.Expiry
	}
	return s.opts.Keys.SealSecret(keyring.LoginPlace(user, p.ID), text), t.Refresh != "", expires, nil
}

// extra returns the properties of a provider's answer that are kept.
func (s *Service) extra(p *Provider, got *oauth2.Token, before map[string]any) map[string]any {
	kept := map[string]any{}
	for _, key := range p.ExtraKeys {
		if value := got.Extra(key); value != nil {
			kept[key] = value
		} else if value, ok := before[key]; ok {
			kept[key] = value
		}
	}
	if text, err := json.Marshal(kept); err != nil || len(text) > maxExtra {
		s.log.Warn("extra properties of an external login are left out: too long", "provider", p.ID, "bytes", len(text))
		return nil
	}
	return kept
}

func (s *Service) open(link dbsqlc.ExternalAuthLink) (tokens, error) {
	text, err := s.opts.Keys.OpenSecret(keyring.LoginPlace(link.UserID, link.ProviderID), link.Tokens)
	if err != nil {
		return tokens{}, err
	}
	var t tokens
	if err := json.Unmarshal(text, &t); err != nil {
		return tokens{}, fmt.Errorf("decode tokens: %w", err)
	}
	return t, nil
}

// Link stores the tokens that a provider has issued to a user, replacing any previous ones.
func (s *Service) Link(ctx context.Context, user uuid.UUID, provider string, got *oauth2.Token) error {
	return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if err := s.LinkIn(ctx, q, user, provider, got); err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.Entry{Action: audit.Create, Kind: audit.ExternalAuth, ID: user, Name: provider, Diff: audit.Diff{}.Secret("tokens")})
	})
}

// LinkIn is Link within a transaction.
func (s *Service) LinkIn(
	ctx context.Context, q *dbsqlc.Queries, user uuid.UUID, provider string, got *oauth2.Token,
) error {
	p := s.keeper(provider)
	if p == nil {
		return noProvider(provider)
	}
	sealed, refreshable, expires, err := s.seal(user, p, got, nil)
	if err != nil {
		return err
	}
	if err := q.UpsertExternalAuthLink(ctx, dbsqlc.UpsertExternalAuthLinkParams{
		UserID: user, ProviderID: p.ID, Tokens: sealed, Refreshable: refreshable, ExpiresAt: expires,
	}); err != nil {
		return fmt.Errorf("store link: %w", err)
	}
	return nil
}

// token returns a user's token for a provider, refreshed if it is about to expire, and validated. It blocks for at most
// two requests to the provider, and concurrent calls for the same token share the work. An error is a fault: the answer
// is unknown for now.
func (s *Service) token(ctx context.Context, user uuid.UUID, p *Provider) (Token, error) {
	// The first caller may cancel before the others.
	ctx = context.WithoutCancel(ctx)
	got, err, _ := s.work.Do(user.String()+" "+p.ID, func() (any, error) {
		ctx, cancel := context.WithTimeout(ctx, workTimeout)
		defer cancel()
		return s.find(ctx, user, p)
	})
	if err != nil {
		return Token{}, err
	}
	return got.(Token), nil
}

func (s *Service) find(ctx context.Context, user uuid.UUID, p *Provider) (Token, error) {
	link, err := s.opts.DB.GetExternalAuthLink(ctx, dbsqlc.GetExternalAuthLinkParams{UserID: user, ProviderID: p.ID})
	if database.IsNotFound(err) {
		return Token{}, nil
	}
	if err != nil {
		return Token{}, fmt.Errorf("read link: %w", err)
	}
	if link.Failure != "" && s.renewal(link) == nil {
		return Token{Failure: link.Failure}, nil
	}
	refreshed := false
	if left(link) < margin {
		if link, refreshed, err = s.refresh(ctx, p, link); err != nil || link.Failure != "" {
			return Token{Failure: link.Failure}, err
		}
	}
	t, err := s.open(link)
	if err != nil {
		return Token{}, s.unreadable(link, err)
	}
	good, err := s.validate(ctx, p, t)
	if err != nil {
		// An outage of the service must not look like a revoked token. A user of the token will notice if it was
		// revoked.
		s.log.WarnContext(ctx, "token of another service not validated", "user", user, "provider", p.ID, "err", err)
		good = true
	}
	if !good && !refreshed && link.Refreshable {
		if link, refreshed, err = s.refresh(ctx, p, link); err != nil || link.Failure != "" {
			return Token{Failure: link.Failure}, err
		}
		if t, err = s.open(link); err != nil {
			return Token{}, s.unreadable(link, err)
		}
		good = refreshed
	}
	if !good {
		return Token{Failure: failureRefused}, s.fail(ctx, link, failureRefused)
	}
	return Token{Access: secret.Token(t.Access), Extra: t.Extra}, nil
}

// left returns how long a link's token remains valid.
func left(link dbsqlc.ExternalAuthLink) time.Duration {
	if link.ExpiresAt == nil {
		return margin
	}
	return time.Until(*link.ExpiresAt)
}

// unreadable returns the fault for a link whose key is gone. The user only needs to sign in again.
func (s *Service) unreadable(link dbsqlc.ExternalAuthLink, err error) error {
	s.log.Warn("cannot read external login", "user", link.UserID, "provider", link.ProviderID, "err", err)
	return fault.New(fault.Conflict, "Your link with %s can no longer be read: the server's keys have changed.", link.ProviderID).
		WithDetail("Sign in there again: %s", s.PageURL(link.ProviderID))
}

// fail marks a link as unusable, unless it was renewed meanwhile.
func (s *Service) fail(ctx context.Context, link dbsqlc.ExternalAuthLink, why string) error {
	err := s.opts.DB.FailExternalAuthLink(ctx, dbsqlc.FailExternalAuthLinkParams{
		UserID: link.UserID, ProviderID: link.ProviderID, Failure: why, Seen: link.UpdatedAt,
	})
	if err != nil {
		return fmt.Errorf("mark link: %w", err)
	}
	s.log.InfoContext(ctx, "external login is no longer valid", "user", link.UserID, "provider", link.ProviderID,
		"reason", why)
	return nil
}

// refresh renews a link's tokens while holding the row's lock, so that two servers never spend the same refresh token.
// done reports that the tokens are now new, renewed by this call or by another. If a token cannot be renewed, refresh
// returns the link unchanged as long as the old token is valid, and with Failure set after that.
func (s *Service) refresh(
	ctx context.Context, p *Provider, seen dbsqlc.ExternalAuthLink,
) (link dbsqlc.ExternalAuthLink, done bool, err error) {
	link, got, done, err := s.renewLocked(ctx, p, seen)
	if heed := s.heeds[p.ID]; got != nil && heed != nil {
		heed(ctx, seen.UserID, got)
	}
	return link, done, err
}

// renewLocked is the part of refresh that holds the row's lock. It also returns the new tokens if this call has stored
// them.
func (s *Service) renewLocked(
	ctx context.Context, p *Provider, seen dbsqlc.ExternalAuthLink,
) (link dbsqlc.ExternalAuthLink, fresh *oauth2.Token, done bool, err error) {
	leave, err := enter(ctx, s.refreshing)
	if err != nil {
		return seen, nil, false, err
	}
	defer leave()
	got := s.renewal(seen) // requested once, however often the transaction runs
	var refused error
	renew := func(q *dbsqlc.Queries) (err error) {
		link, err = q.LockExternalAuthLink(ctx, dbsqlc.LockExternalAuthLinkParams{
			UserID: seen.UserID, ProviderID: seen.ProviderID,
		})
		if err != nil {
			return err
		}
		if !link.UpdatedAt.Equal(seen.UpdatedAt) || link.Failure != "" && got == nil {
			done = link.Failure == ""
			return nil
		}
		if !link.Refreshable && got == nil {
			return nil
		}
		if got == nil {
			t, err := s.open(link)
			if err != nil {
				return s.unreadable(link, err)
			}
			got, refused = s.renew(ctx, p, t.Refresh)
		}
		if refused == nil { // a refusal is handled below
			link, err = s.store(ctx, q, p, link, got)
			if done = err == nil; done {
				fresh = got
			}
		}
		return err
	}
	// By the time it answers, the provider has spent the old refresh token: the new tokens must not be lost with a
	// failed transaction.
	retry := backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for try := 1; ; try++ {
		err = s.opts.DB.InTx(ctx, renew)
		s.remember(seen, got, err)
		if err == nil || got == nil || try == storeTries || database.IsNotFound(err) || retry.Wait(ctx) != nil {
			break
		}
	}
	switch {
	case database.IsNotFound(err): // unlinked meanwhile
		return dbsqlc.ExternalAuthLink{
			UserID: seen.UserID, ProviderID: seen.ProviderID, Failure: failureRefresh,
		}, nil, false, nil
	case err != nil:
		return link, nil, false, fmt.Errorf("renew link: %w", err)
	case done || link.Failure != "":
		return link, fresh, done, nil
	case refused != nil && p.refusal(refused), p.Renew == nil && !link.Refreshable && left(link) <= 0:
		link.Failure = failureRefresh
		return link, nil, false, s.fail(ctx, link, failureRefresh)
	case refused != nil:
		s.log.WarnContext(ctx, "cannot renew external token", "user", seen.UserID, "provider", p.ID, "err",
			describe(refused))
		if left(link) <= 0 {
			return link, nil, false, fault.New(fault.Unavailable, "%s did not issue a new token.", p.DisplayName).
				WithDetail("Try again in a moment.")
		}
	}
	return link, nil, false, nil
}

// store writes renewed tokens to the database.
func (s *Service) store(
	ctx context.Context, q *dbsqlc.Queries, p *Provider, link dbsqlc.ExternalAuthLink, got *oauth2.Token,
) (dbsqlc.ExternalAuthLink, error) {
	before, err := s.open(link)
	if err != nil {
		before = tokens{} // the new tokens have a key again
	}
	sealed, refreshable, expires, err := s.seal(link.UserID, p, got, before.Extra)
	if err != nil {
		return link, err
	}
	return q.UpdateExternalAuthLink(ctx, dbsqlc.UpdateExternalAuthLinkParams{
		UserID: link.UserID, ProviderID: link.ProviderID, Tokens: sealed, Refreshable: refreshable, ExpiresAt: expires,
	})
}

// renew requests new tokens. It uses the slot of the refresh: nothing may wait here while a row is locked.
func (s *Service) renew(ctx context.Context, p *Provider, refreshToken string) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, s.client), askTimeout)
	defer cancel()
	if p.Renew != nil {
		return p.Renew(ctx, refreshToken)
	}
	return s.config(p).TokenSource(ctx, &oauth2.Token{RefreshToken: refreshToken}).Token()
}

// refusal reports whether the provider will never accept the refresh token again. A sign-in ends only for the answer
// that says so: a wrong client secret must not sign everyone out.
func (p *Provider) refusal(err error) bool {
	if p.Renew == nil {
		return isFinal(err)
	}
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	// Some providers (glewlwyd) answer status 400 without any body instead. Proxies that fail send a page.
	mute := ok && refused.ErrorCode == "" && len(refused.Body) == 0 && refused.Response != nil &&
		refused.Response.StatusCode == http.StatusBadRequest
	return mute || ok && refused.ErrorCode == "invalid_grant"
}

// isFinal reports whether the provider refused the request, rather than failed.
func isFinal(err error) bool {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return false
	}
	return refused.ErrorCode != "" && refused.ErrorCode != "temporarily_unavailable" &&
		refused.ErrorCode != "server_error" && refused.ErrorCode != "slow_down" ||
		refused.Response != nil && (refused.Response.StatusCode == http.StatusBadRequest || refused.Response.StatusCode == http.StatusUnauthorized)
}

// describe returns the part of a provider's refusal that may be logged: the body of its answer may contain anything.
func describe(err error) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		status := 0
		if refused.Response != nil {
			status = refused.Response.StatusCode
		}
		return fmt.Errorf("the service answered with status %d, error %.64q", status, refused.ErrorCode)
	}
	return err
}

// validate asks the provider whether a token is valid. An error means that this cannot be determined.
func (s *Service) validate(ctx context.Context, p *Provider, t tokens) (good bool, err error) {
	if p.ValidateURL == "" {
		return true, nil
	}
	err = s.Ask(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ValidateURL, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+t.Access)
		req.Header.Set("Accept", "application/json")
		resp, err := s.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		limited := resp.Header.Get("Retry-After") != "" || resp.Header.Get("X-RateLimit-Remaining") == "0"
		switch {
		case resp.StatusCode < 300:
			good = true
		case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden && !limited:
		default:
			return fmt.Errorf("%s answered %s", p.ValidateURL, resp.Status)
		}
		return nil
	})
	return good, err
}
