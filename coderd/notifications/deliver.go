package notifications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

const (
	// lookEvery bounds how late a retry is, or a message whose server died.
	lookEvery = 15 * time.Second
	// leaseMargin is the time beyond an attempt's own for storing its result.
	leaseMargin = 30 * time.Second
	// maxSends bounds the attempts of one method that run at the same time on one server.
	maxSends = 8
	// maxInbox bounds the inbox messages of one transaction.
	maxInbox = 100
	// lastSend is how long attempts continue when the server stops.
	lastSend = 5 * time.Second
	// storeTimeout bounds storing a result, also while the server stops.
	storeTimeout = 10 * time.Second
	// retryMin and retryMax bound the pause after a failed attempt; it grows fivefold with each.
	retryMin = time.Minute
	retryMax = 6 * time.Hour
)

// lane delivers the messages of one method.
type lane struct {
	method string
	wake   notify.Wake
	send   func(context.Context, message) error // nil for the inbox
	close  func()                               // nil if there is nothing to close
}

// message is a leased message with its text.
type message struct {
	row    dbsqlc.LeaseNotificationsRow
	of     Template
	labels map[string]string
	Rendered
}

// refused is an error after which trying again is pointless.
type refused struct{ error }

func (e refused) Unwrap() error { return e.error }

// run delivers until Stop.
func (s *Service) run(l *lane) {
	for {
		if err := s.drain(s.life, l); err != nil && s.life.Err() == nil {
			s.log.Warn("cannot deliver notifications, trying again", "method", l.method, "err", err)
		}
		timer := time.NewTimer(lookEvery/2 + rand.N(lookEvery/2))
		select {
		case <-s.life.Done():
			timer.Stop()
			return
		case <-l.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Deliver delivers what is due now, and returns when nothing is. Several servers may call it at once.
func (s *Service) Deliver(ctx context.Context) error {
	for _, l := range s.lanes {
		if err := s.drain(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// drain delivers the due messages of one method.
func (s *Service) drain(ctx context.Context, l *lane) error {
	for ctx.Err() == nil {
		n, limit := 0, maxSends
		var err error
		if l.send == nil {
			limit = maxInbox
			n, err = s.deliverInbox(ctx)
		} else {
			n, err = s.deliver(ctx, l)
		}
		if err != nil || n < limit {
			return err
		}
	}
	return ctx.Err()
}

func (s *Service) lease(
	ctx context.Context, q *dbsqlc.Queries, method string, limit int32,
) ([]dbsqlc.LeaseNotificationsRow, uuid.UUID, error) {
	lease := uuid.New()
	rows, err := q.LeaseNotifications(ctx, dbsqlc.LeaseNotificationsParams{
		Lease: lease, Seconds: (s.opts.Config.Timeout + leaseMargin).Seconds(), Method: method, MaxRows: limit,
	})
	if err != nil {
		return nil, lease, fmt.Errorf("lease notifications: %w", err)
	}
	return rows, lease, nil
}

// deliver leases messages, sends them at the same time, and stores the results.
func (s *Service) deliver(ctx context.Context, l *lane) (int, error) {
	rows, lease, err := s.lease(ctx, s.opts.DB.Queries, l.method, maxSends)
	if err != nil {
		return 0, err
	}
	// When the server stops, attempts that have begun may finish: breaking them off would repeat messages.
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Config.Timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(lastSend, cancel)
		context.AfterFunc(sending, func() { timer.Stop() })
	})()
	errs := make([]error, len(rows))
	var running sync.WaitGroup
	for i, row := range rows {
		running.Go(func() { errs[i] = s.attempt(sending, ctx, l, row, lease) })
	}
	running.Wait()
	return len(rows), errors.Join(errs...)
}

// attempt sends one message, and stores the result. ctx bounds the attempt; life ends when the server stops.
func (s *Service) attempt(ctx, life context.Context, l *lane, row dbsqlc.LeaseNotificationsRow, lease uuid.UUID) error {
	err := s.try(ctx, l, row)
	store, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	final := dbsqlc.FinishNotificationParams{ID: row.ID, Lease: lease, Status: "sent"}
	switch {
	case err == nil:
	case life.Err() != nil && ctx.Err() != nil:
		_, err := s.opts.DB.ReleaseNotification(store, dbsqlc.ReleaseNotificationParams{ID: row.ID, Lease: lease})
		return err
	case !isRefused(err) && int(row.Attempts) < s.opts.Config.MaxAttempts:
		s.log.WarnContext(ctx, "cannot deliver notification, trying again", "method", l.method, "notification", row.ID,
			"user", row.UserID, "try", row.Attempts, "err", err)
		_, err := s.opts.DB.RetryNotification(store, dbsqlc.RetryNotificationParams{
			ID: row.ID, Lease: lease, Error: reason(err), Seconds: pause(row.Attempts).Seconds(),
		})
		return err
	default:
		s.log.ErrorContext(ctx, "cannot deliver notification, giving up", "method", l.method, "notification", row.ID,
			"user", row.UserID, "try", row.Attempts, "err", err)
		final.Status, final.Error = "failed", reason(err)
	}
	if _, err := s.opts.DB.FinishNotification(store, final); err != nil {
		return fmt.Errorf("store delivery: %w", err)
	}
	return nil
}

func (s *Service) try(ctx context.Context, l *lane, row dbsqlc.LeaseNotificationsRow) error {
	if int(row.Attempts) > s.opts.Config.MaxAttempts {
		return refused{errors.New("servers stopped during each attempt")}
	}
	m, err := compose(row, s.opts.AccessURL)
	if err != nil {
		return err
	}
	return l.send(ctx, m)
}

// compose renders a message.
func compose(row dbsqlc.LeaseNotificationsRow, accessURL *url.URL) (message, error) {
	m := message{row: row}
	if row.DeletedAt != nil {
		return m, refused{errors.New("the user was deleted")}
	}
	var known bool
	if m.of, known = find(row.TemplateID); !known {
		return m, errors.New("the template belongs to a newer server") // which may take it
	}
	if err := json.Unmarshal(row.Labels, &m.labels); err != nil {
		return m, refused{fmt.Errorf("read labels: %w", err)}
	}
	m.Rendered = render(m.of, m.labels, accessURL)
	return m, nil
}

// deliverInbox moves messages to inboxes. A message is finished in the transaction that inserts its row.
func (s *Service) deliverInbox(ctx context.Context) (n int, err error) {
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if err := q.LockInboxes(ctx); err != nil {
			return err
		}
		rows, lease, err := s.lease(ctx, q, MethodInbox, maxInbox)
		if err != nil {
			return err
		}
		n = len(rows)
		for _, row := range rows {
			final := dbsqlc.FinishNotificationParams{ID: row.ID, Lease: lease, Status: "sent"}
			m, err := compose(row, s.opts.AccessURL)
			switch {
			case err == nil:
				if err := insertInbox(ctx, q, m); err != nil {
					return err
				}
			case !isRefused(err) && int(row.Attempts) < s.opts.Config.MaxAttempts:
				if _, err := q.RetryNotification(ctx, dbsqlc.RetryNotificationParams{
					ID: row.ID, Lease: lease, Error: reason(err), Seconds: pause(row.Attempts).Seconds(),
				}); err != nil {
					return err
				}
				continue
			default:
				final.Status, final.Error = "failed", reason(err)
			}
			if _, err := q.FinishNotification(ctx, final); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("deliver to inboxes: %w", err)
	}
	return n, nil
}

func isRefused(err error) bool {
	_, ok := errors.AsType[refused](err)
	return ok
}

// pause returns how long to wait after an attempt.
func pause(attempt int32) time.Duration {
	d := retryMin
	for range attempt - 1 {
		d = min(5*d, retryMax)
	}
	return d
}

// reason returns an error as it is stored.
func reason(err error) string { return shorten(visible(bounded(err.Error())), 500) }
