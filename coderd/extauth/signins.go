package extauth

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// SignInPrefix begins the ids of the providers in Options.SignIn. The id of a provider that users link accounts with
// has no colon.
const SignInPrefix = "sign-in:"

// SignInOIDC is the provider whose access token templates may read.
const SignInOIDC = SignInPrefix + string(sdk.LoginOIDC)

// Stored returns a user's access token as it is in the database, or "" if there is none that is valid. It queries only
// the database, because it runs in a transaction.
func (s *Service) Stored(
	ctx context.Context, q *dbsqlc.Queries, user uuid.UUID, provider string,
) (secret.Token, error) {
	link, err := q.GetExternalAuthLink(ctx, dbsqlc.GetExternalAuthLinkParams{UserID: user, ProviderID: provider})
	if database.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read link: %w", err)
	}
	if s.keeper(provider) == nil || link.Failure != "" || left(link) <= 0 {
		return "", nil
	}
	t, err := s.open(link)
	if err != nil {
		_ = s.unreadable(link, err) // logs it
		return "", nil
	}
	return secret.Token(t.Access), nil
}

// Renew renews a user's tokens now, whether or not they expire soon, and reports whether the provider refused for good.
// An error means that this is unknown. It blocks for one request to the provider; of several servers, one asks.
func (s *Service) Renew(ctx context.Context, user uuid.UUID, provider string) (refused bool, err error) {
	p := s.keeper(provider)
	if p == nil {
		return false, noProvider(provider)
	}
	got, err, _ := s.work.Do("refresh "+user.String()+" "+p.ID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workTimeout)
		defer cancel()
		link, err := s.opts.DB.GetExternalAuthLink(ctx, dbsqlc.GetExternalAuthLinkParams{
			UserID: user, ProviderID: p.ID,
		})
		if database.IsNotFound(err) {
			return false, nil // signed out for good, or deleted
		}
		if err != nil {
			return false, fmt.Errorf("read link: %w", err)
		}
		if link.Failure != "" {
			return true, nil
		}
		link, _, err = s.refresh(ctx, p, link)
		return link.Failure != "", err
	})
	if err != nil {
		return false, err
	}
	return got.(bool), nil
}
