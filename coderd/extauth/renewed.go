package extauth

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

const (
	// storeTries is how often the service tries to store a provider's new tokens before it reports failure.
	storeTries = 4
	// lastStoreTimeout bounds storing the remaining tokens when the server stops.
	lastStoreTimeout = 5 * time.Second
)

type linkKey struct {
	user     uuid.UUID
	provider string
}

// renewal holds the tokens that a provider has issued for a link, in the version of the link for which they were
// requested. Until they are stored, this process has the only copy: the next question about the link stores them
// instead of spending the old refresh token again.
type renewal struct {
	of  time.Time // the link's updated_at
	got *oauth2.Token
}

func keyOf(link dbsqlc.ExternalAuthLink) linkKey { return linkKey{link.UserID, link.ProviderID} }

// renewal returns the tokens that were issued for the link and are not stored yet, or nil. If the link was renewed in
// another way, it discards them.
func (s *Service) renewal(link dbsqlc.ExternalAuthLink) *oauth2.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.renewed[keyOf(link)]
	if ok && r.of.Equal(link.UpdatedAt) {
		return r.got
	}
	delete(s.renewed, keyOf(link))
	return nil
}

// remember keeps the tokens that were issued for a link if its transaction failed with err, and otherwise forgets them.
func (s *Service) remember(link dbsqlc.ExternalAuthLink, got *oauth2.Token, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got == nil || err == nil || database.IsNotFound(err) {
		delete(s.renewed, keyOf(link))
		return
	}
	s.renewed[keyOf(link)] = renewal{link.UpdatedAt, got}
}

// storeRenewed makes a last attempt to store the remaining tokens.
func (s *Service) storeRenewed() {
	s.mu.Lock()
	left := maps.Clone(s.renewed)
	s.mu.Unlock()
	if len(left) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastStoreTimeout)
	defer cancel()
	for key, r := range left {
		err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
			link, err := q.LockExternalAuthLink(ctx, dbsqlc.LockExternalAuthLinkParams{
				UserID: key.user, ProviderID: key.provider,
			})
			if database.IsNotFound(err) || err == nil && !link.UpdatedAt.Equal(r.of) {
				return nil // unlinked, or renewed in another way
			}
			if err != nil {
				return err
			}
			p := s.keeper(key.provider)
			if p == nil {
				return fmt.Errorf("provider %s is not configured", key.provider)
			}
			_, err = s.store(ctx, q, p, link, r.got)
			return err
		})
		if err != nil {
			s.log.Error("renewed tokens are lost: the user must sign in again", "user", key.user, "provider",
				key.provider, "err", err)
		}
	}
}
