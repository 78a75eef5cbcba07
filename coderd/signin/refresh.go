package signin

import (
	"context"
	"time"

	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
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

// checkSignIns renews the sign-ins that are due, and ends the sessions of users whom their provider refuses. Several servers may
// do this at once: the row of a sign-in is locked while the provider is asked, and a row that another server renewed is not due.
func (s *Service) checkSignIns(ctx context.Context) {
	if err := s.check(ctx, time.Now().Add(-RefreshEvery)); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "cannot check sign-ins, trying again", "err", err)
	}
}

// check renews the sign-ins of users with sessions that were not renewed since a moment. It blocks for the requests to the provider.
func (s *Service) check(ctx context.Context, before time.Time) error {
	var ids []string
	for _, p := range Providers(s.opts.OIDC, s.opts.GitHub) {
		ids = append(ids, p.ID)
	}
	due, err := s.opts.DB.ListSignInsToCheck(ctx, dbsqlc.ListSignInsToCheckParams{Providers: ids, Before: before, MaxRows: maxChecks})
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
		s.log.InfoContext(ctx, "sessions ended: the identity provider refuses the user", "user", link.UserID, "provider", link.ProviderID)
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
