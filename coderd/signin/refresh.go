package signin

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// checkEvery is how often a server looks for sign-ins that are due.
	checkEvery = time.Minute
	// maxChecks bounds the sign-ins in one round; the rest is due again in the next.
	maxChecks = 2000
	// maxSilent is after how many unanswered questions a round ends: the provider is away.
	maxSilent = 3
	// dormantEvery is how often a server looks for accounts that nobody uses.
	dormantEvery = time.Hour
)

// whyEnded is what holders of ended sessions read.
const whyEnded = "the identity provider no longer confirms your sign-in. Sign in again; if the provider refuses, ask its administrator."

// whyLeft is what holders of sessions read who are in no allowed group any longer.
const whyLeft = "you are no longer in a group that may sign in here. Ask the administrator of the identity provider."

// checkSignIns renews the sign-ins that are due, and ends the sessions of users whom their provider refuses. Several
// servers may do this at once: the row of a sign-in is locked while the provider is asked, and a row that another
// server renewed is not due.
func (s *Service) checkSignIns(ctx context.Context) {
	if err := s.check(ctx, time.Now().Add(-RefreshEvery)); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "cannot check sign-ins, trying again", "err", err)
	}
}

// check renews the sign-ins of users with sessions that were not renewed since a moment. It blocks for the requests to
// the provider.
func (s *Service) check(ctx context.Context, before time.Time) error {
	var ids []string
	for _, p := range Providers(s.opts.OIDC, s.opts.GitHub) {
		ids = append(ids, p.ID)
	}
	due, err := s.opts.DB.ListSignInsToCheck(ctx, dbsqlc.ListSignInsToCheckParams{
		Providers: ids, Before: before, MaxRows: maxChecks,
	})
	if err != nil {
		return err
	}
	silent := 0
	for _, link := range due {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		refused, err := s.opts.Tokens.Renew(ctx, link.UserID, link.ProviderID)
		if err != nil {
			if silent++; silent == maxSilent {
				return err
			}
			s.log.WarnContext(ctx, "cannot renew sign-in", "user", link.UserID, "provider", link.ProviderID, "err", err)
			continue
		}
		silent = 0
		if !refused {
			continue
		}
		if err := s.opts.Accounts.EndSessions(ctx, link.UserID, whyEnded); err != nil {
			return err
		}
		s.log.InfoContext(ctx, "sessions ended: the identity provider refuses the user", "user", link.UserID,
			"provider", link.ProviderID)
	}
	return nil
}

// resync changes a user's memberships to what the provider says together with renewed tokens. What fails is tried again
// at the next renewal.
func (s *Service) resync(ctx context.Context, userID uuid.UUID, got *oauth2.Token) {
	if err := s.syncRenewed(ctx, userID, got); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "cannot read claims of renewed sign-in, trying again at the next renewal", "user",
			userID, "err", err)
	}
}

func (s *Service) syncRenewed(ctx context.Context, userID uuid.UUID, got *oauth2.Token) error {
	link, err := s.opts.DB.GetUserLink(ctx, dbsqlc.GetUserLinkParams{UserID: userID, LoginType: string(sdk.LoginOIDC)})
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	var said idpsync.Claims
	if err := s.opts.Tokens.Ask(ctx, func(ctx context.Context) (err error) {
		said, err = s.opts.OIDC.renewed(ctx, got, link.Subject)
		return err
	}); err != nil {
		return err
	}
	kept, err := keptClaims(said.Values)
	if err != nil {
		return err
	}
	var user dbsqlc.User
	var synced idpsync.Report
	stale := false
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		now, err := q.LockUserLink(ctx, dbsqlc.LockUserLinkParams{UserID: userID, LoginType: link.LoginType})
		if err != nil {
			return err
		}
		if user, err = q.GetUser(ctx, userID); err != nil {
			return err
		}
		// A sign-in that ended meanwhile has newer claims.
		stale = now.Issuer != link.Issuer || now.Subject != link.Subject || !now.UpdatedAt.Equal(link.UpdatedAt) ||
			user.LoginType != link.LoginType
		if stale {
			return nil
		}
		if !said.Partial {
			if err := q.UpdateUserLinkClaims(ctx, dbsqlc.UpdateUserLinkClaimsParams{
				UserID: userID, LoginType: link.LoginType, Claims: kept,
			}); err != nil {
				return err
			}
		}
		synced, err = s.opts.IDPSync.Sync(ctx, q, userID, said)
		return err
	})
	if err != nil {
		return fmt.Errorf("sync memberships: %w", err)
	}
	if stale {
		return nil
	}
	synced.Log(ctx, s.log, user.Username)
	p := s.opts.OIDC.policy()
	if found, sure := idpsync.Any(said, p.GroupField, p.Groups); len(p.Groups) > 0 && sure && !found {
		s.log.InfoContext(ctx, "sessions ended: the user left the groups that may sign in", "user", user.Username)
		return s.opts.Accounts.EndSessions(ctx, userID, whyLeft)
	}
	return nil
}

// markDormant marks accounts that were not used for DormantAfter. They wake when they are used.
func (s *Service) markDormant(ctx context.Context) {
	rows, err := s.opts.DB.MarkDormantUsers(ctx, time.Now().Add(-DormantAfter))
	if err != nil {
		if ctx.Err() == nil {
			s.log.WarnContext(ctx, "cannot mark dormant users, trying again", "err", err)
		}
		return
	}
	for _, row := range rows {
		s.log.InfoContext(ctx, "user is dormant", "user", row.Username)
	}
}
