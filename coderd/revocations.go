package coderd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

const (
	// recheckTimeout bounds one round of questions who may go on.
	recheckTimeout = 30 * time.Second
	// expiryEvery bounds how long a key that was just made may be overlooked. Keys live for a minute at least.
	expiryEvery = 30 * time.Second
	// expiryMargin keeps a question from coming before the end of a key.
	expiryMargin = 20 * time.Millisecond
)

// revocations end what a session opened with the session. The database announces each user who lost a key, a role or
// the account ("users_revoked", to every server); expiry is not announced, so the server waits for the next key that
// expires. Each user is asked about again until every service has had its answer. The same questions tell a gateway
// that a user has a device more.
type revocations struct {
	log     *slog.Logger
	db      *database.DB
	maxKey  time.Duration                                     // the longest that an SSH key lives; 0: as long as its user chose
	recheck []func(ctx context.Context, user uuid.UUID) error // uuid.Nil means everybody

	pending *notify.Set[uuid.UUID] // users who may have lost a right; uuid.Nil means everybody
	keys    notify.Wake            // the next key to expire may be another
}

func newRevocations(db *database.DB, log *slog.Logger, maxKey time.Duration) *revocations {
	return &revocations{
		log: log, db: db, maxKey: maxKey, pending: notify.NewSet[uuid.UUID](), keys: notify.NewWake(),
	}
}

// announced takes what the database announces: a user's id, "" when announcements may have been missed. It does not
// block.
func (r *revocations) announced(payload string) {
	user, err := uuid.Parse(payload)
	if err != nil && payload != "" {
		r.log.Error("cannot parse revocation", "payload", payload, "err", err)
	}
	r.recheckSoon(user)
	r.keys.Poke()
}

// recheckSoon has everything that the user has open looked at; uuid.Nil means everybody. It does not block.
func (r *revocations) recheckSoon(users ...uuid.UUID) { r.pending.Add(users...) }

// run works until ctx ends.
func (r *revocations) run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { r.watchExpiry(ctx) })
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	for {
		select {
		case <-r.pending.Wake:
		case <-ctx.Done():
			return
		}
		failed := false
		for _, user := range r.pending.Take() {
			if err := r.look(ctx, user); err != nil && ctx.Err() == nil {
				r.log.Warn("cannot check user's open sessions, trying again", "user", user, "err", err)
				r.recheckSoon(user)
				failed = true
			}
		}
		if !failed {
			retry.Reset()
		} else if retry.Wait(ctx) != nil {
			return
		}
	}
}

// look asks every service at once: one that has to wait keeps no other from cutting.
func (r *revocations) look(ctx context.Context, user uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	errs := make([]error, len(r.recheck))
	var asking sync.WaitGroup
	for i, recheck := range r.recheck {
		asking.Go(func() { errs[i] = recheck(ctx, user) })
	}
	asking.Wait()
	return errors.Join(errs...)
}

// watchExpiry rechecks the users of keys that expire, until ctx ends. It uses this process's clock, as checks of keys
// do.
func (r *revocations) watchExpiry(ctx context.Context) {
	looked := time.Now()
	retry := backoff.Backoff{Min: 500 * time.Millisecond, Max: 5 * time.Second}
	for {
		at := time.Now()
		next, err := r.expire(ctx, looked, at)
		wait := min(time.Until(next)+expiryMargin, expiryEvery)
		if err == nil {
			looked = at
			retry.Reset()
		} else {
			if ctx.Err() == nil {
				r.log.Warn("cannot look for expired keys, trying again", "err", err)
			}
			wait = retry.Next()
		}
		timer := time.NewTimer(max(wait, expiryMargin))
		select {
		case <-timer.C:
		case <-r.keys:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// expire rechecks the users of keys that expired in the time, and says when the next key will.
func (r *revocations) expire(ctx context.Context, after, until time.Time) (next time.Time, err error) {
	users, err := r.db.ListUsersWithExpiredKeys(ctx, dbsqlc.ListUsersWithExpiredKeysParams{
		After: after, Until: until, MaxSeconds: r.maxKey.Seconds(),
	})
	if err != nil {
		return next, err
	}
	if len(users) > 0 {
		r.recheckSoon(users...)
	}
	return r.db.NextKeyExpiry(ctx, dbsqlc.NextKeyExpiryParams{After: until, MaxSeconds: r.maxKey.Seconds()})
}
