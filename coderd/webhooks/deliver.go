package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/webhook"
)

const (
	// lookEvery bounds how late a retry is, or a delivery whose server died.
	lookEvery = 15 * time.Second
	// timeout bounds one attempt.
	timeout = 15 * time.Second
	// leaseMargin is the time beyond an attempt's own for storing its result.
	leaseMargin = 30 * time.Second
	// maxSends bounds the attempts for one webhook that run at the same time on one server.
	maxSends = 8
	// maxNumbered bounds the events that one transaction numbers.
	maxNumbered = 500
	// lastSend is how long attempts continue when the server stops.
	lastSend = 5 * time.Second
	// storeTimeout bounds storing a result, also while the server stops.
	storeTimeout = 10 * time.Second
	// maxExcerpt bounds what the log of deliveries keeps of an answer and of an error, in bytes.
	maxExcerpt = 500
	// persistent is how long a webhook must have failed to be disabled when a delivery is given up.
	persistent = 12 * time.Hour
)

// schedule are the pauses after failed attempts: about 18 hours in all.
var schedule = []time.Duration{5 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour}

// secrets are what is kept encrypted of a webhook.
type secrets struct {
	URL    string `json:"url"`
	Secret string `json:"secret"`
	// Previous is the secret before that one. Messages are also signed with it until PreviousUntil.
	Previous      string    `json:"previous,omitempty"`
	PreviousUntil time.Time `json:"previous_until,omitzero"`
}

// signing returns the secrets that a message is signed with, the newest first.
func (w secrets) signing(now time.Time) []string {
	if w.Previous != "" && now.Before(w.PreviousUntil) {
		return []string{w.Secret, w.Previous}
	}
	return []string{w.Secret}
}

func (s *Service) open(id uuid.UUID, sealed []byte) (secrets, error) {
	var out secrets
	plain, err := s.opts.Keys.OpenSecret(keyring.WebhookPlace(id), sealed)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(plain, &out); err != nil {
		return out, keyring.ErrUnreadable
	}
	return out, nil
}

func (s *Service) seal(id uuid.UUID, what secrets) ([]byte, error) {
	plain, err := json.Marshal(what)
	if err != nil {
		return nil, fmt.Errorf("encode webhook: %w", err)
	}
	return s.opts.Keys.SealSecret(keyring.WebhookPlace(id), plain), nil
}

// run numbers and delivers until Stop.
func (s *Service) run() {
	for {
		if err := s.round(s.life); err != nil && s.life.Err() == nil {
			s.log.Warn("cannot deliver events, trying again", "err", err)
		}
		timer := time.NewTimer(lookEvery/2 + rand.N(lookEvery/2))
		select {
		case <-s.life.Done():
			timer.Stop()
			return
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// round numbers new events, and begins deliveries to the webhooks that have some due and to which none are under way
// here.
func (s *Service) round(ctx context.Context) error {
	if err := s.number(ctx); err != nil {
		return err
	}
	due, err := s.opts.DB.ListDueWebhooks(ctx)
	if err != nil {
		return fmt.Errorf("list webhooks: %w", err)
	}
	for _, hook := range due {
		if !s.begin(hook.ID) {
			continue
		}
		s.running.Go(func() {
			err := s.drain(ctx, hook.ID)
			s.end(hook.ID)
			if err == nil {
				s.wake.Poke() // what became due meanwhile was left to this goroutine
			} else if ctx.Err() == nil {
				s.log.Warn("cannot deliver events, trying again", "webhook", hook.Name, "err", err)
			}
		})
	}
	return nil
}

func (s *Service) begin(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.busy[id]; ok {
		return false
	}
	s.busy[id] = struct{}{}
	return true
}

func (s *Service) end(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, id)
}

// Deliver numbers and delivers what is due now, and returns when nothing is. Several servers may call it at once.
func (s *Service) Deliver(ctx context.Context) error {
	if err := s.number(ctx); err != nil {
		return err
	}
	due, err := s.opts.DB.ListDueWebhooks(ctx)
	if err != nil {
		return fmt.Errorf("list webhooks: %w", err)
	}
	for _, hook := range due {
		if err := s.drain(ctx, hook.ID); err != nil {
			return err
		}
	}
	return nil
}

// number numbers events, and adds their deliveries.
func (s *Service) number(ctx context.Context) error {
	for {
		n := 0
		err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
			if err := q.LockLifecycle(ctx); err != nil {
				return err
			}
			ids, err := q.NumberLifecycleEvents(ctx, maxNumbered)
			n = len(ids)
			if err != nil || n == 0 {
				return err
			}
			if err := q.AddWebhookDeliveries(ctx, ids); err != nil {
				return err
			}
			return q.NotifyLifecycleNumbered(ctx)
		})
		if err != nil {
			return fmt.Errorf("number events: %w", err)
		}
		if n < maxNumbered {
			return nil
		}
	}
}

// drain delivers what is due to one webhook.
func (s *Service) drain(ctx context.Context, hook uuid.UUID) error {
	for ctx.Err() == nil {
		n, err := s.deliver(ctx, hook)
		if err != nil || n == 0 {
			return err
		}
	}
	return ctx.Err()
}

// deliver leases deliveries, makes them at the same time, and stores the results.
func (s *Service) deliver(ctx context.Context, id uuid.UUID) (int, error) {
	lease := uuid.New()
	rows, err := s.opts.DB.LeaseWebhookDeliveries(ctx, dbsqlc.LeaseWebhookDeliveriesParams{
		Lease: lease, Seconds: (timeout + leaseMargin).Seconds(), WebhookID: id, MaxRows: maxSends,
	})
	if err != nil {
		return 0, fmt.Errorf("lease deliveries: %w", err)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	hook, err := s.opts.DB.GetWebhook(ctx, id) // after the lease: an owner may have changed its URL
	if database.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read webhook: %w", err)
	}
	// When the server stops, attempts that have begun may finish: breaking them off would repeat them.
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(lastSend, cancel)
		context.AfterFunc(sending, func() { timer.Stop() })
	})()
	errs := make([]error, len(rows))
	var running sync.WaitGroup
	for i, row := range rows {
		running.Go(func() { errs[i] = s.attempt(sending, ctx, hook, row, lease) })
	}
	running.Wait()
	return len(rows), errors.Join(errs...)
}

// attempt makes one delivery, and stores the result. ctx bounds the attempt; life ends when the server stops.
func (s *Service) attempt(
	ctx, life context.Context, hook dbsqlc.Webhook, row dbsqlc.LeaseWebhookDeliveriesRow, lease uuid.UUID,
) error {
	answer, err := s.post(ctx, hook, row)
	store, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	status, excerpt := int32(answer.Status), shorten(answer.Excerpt)
	switch wait, again := pause(row.Attempts); {
	case err == nil && answer.Accepted():
		if _, err := s.opts.DB.FinishWebhookDelivery(store, dbsqlc.FinishWebhookDeliveryParams{
			ID: row.ID, Lease: lease, Status: "delivered", ResponseStatus: status, Excerpt: excerpt,
		}); err != nil {
			return fmt.Errorf("store delivery: %w", err)
		}
		return s.opts.DB.WebhookSucceeded(store, hook.ID)
	case err != nil && life.Err() != nil && ctx.Err() != nil:
		_, err := s.opts.DB.ReleaseWebhookDelivery(store, dbsqlc.ReleaseWebhookDeliveryParams{ID: row.ID, Lease: lease})
		return err
	case again && answer.Status != http.StatusGone:
		if err := s.opts.DB.WebhookFailed(store, hook.ID); err != nil {
			return err
		}
		_, err := s.opts.DB.RetryWebhookDelivery(store, dbsqlc.RetryWebhookDeliveryParams{
			ID: row.ID, Lease: lease, ResponseStatus: status, Excerpt: excerpt, Error: problem(answer, err),
			Seconds: jittered(wait).Seconds(),
		})
		return err
	default:
		return s.giveUp(store, hook, row, lease, answer, problem(answer, err))
	}
}

// giveUp ends a delivery, and disables the webhook if it has failed for long or says that it is gone.
func (s *Service) giveUp(
	ctx context.Context, hook dbsqlc.Webhook, row dbsqlc.LeaseWebhookDeliveriesRow,
	lease uuid.UUID, answer webhook.Answer, why string,
) error {
	patience := persistent
	if answer.Status == http.StatusGone {
		patience = 0
	}
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if _, err := q.LockWebhook(ctx, hook.ID); err != nil { // before the delivery's row, as one who removes the webhook does
			return err
		}
		n, err := q.FinishWebhookDelivery(ctx, dbsqlc.FinishWebhookDeliveryParams{
			ID: row.ID, Lease: lease, Status: "failed", ResponseStatus: int32(answer.Status),
			Excerpt: shorten(answer.Excerpt), Error: why,
		})
		if err != nil || n == 0 {
			return err
		}
		if err := q.WebhookFailed(ctx, hook.ID); err != nil {
			return err
		}
		n, err = q.DisableWebhook(ctx, dbsqlc.DisableWebhookParams{
			ID: hook.ID, Reason: why, Seconds: patience.Seconds(),
		})
		if err != nil || n == 0 {
			return err
		}
		return s.opts.Notifications.Record(ctx, q, notifications.Event{
			Template: notifications.WebhookDisabled, Roles: []string{rbac.RoleOwner},
			Labels: map[string]string{"webhook": hook.Name, "reason": why},
		})
	})
	if database.IsNotFound(err) {
		return nil // an owner removed it
	}
	if err != nil {
		return fmt.Errorf("store failed delivery: %w", err)
	}
	s.log.ErrorContext(ctx, "cannot deliver event, giving up", "webhook", hook.Name, "event", row.Message, "try",
		row.Attempts, "err", why)
	return nil
}

// post sends an event.
func (s *Service) post(
	ctx context.Context, hook dbsqlc.Webhook, row dbsqlc.LeaseWebhookDeliveriesRow,
) (webhook.Answer, error) {
	if int(row.Attempts) > len(schedule)+1 {
		return webhook.Answer{}, errors.New("servers stopped during each attempt")
	}
	what, err := s.open(hook.ID, hook.Sealed)
	if err != nil {
		return webhook.Answer{}, err
	}
	event, err := decode(row.Message, row.Sequence, row.Type, row.CreatedAt, row.Data)
	if err != nil {
		return webhook.Answer{}, err
	}
	body, err := format(hook.Format, event, s.opts.AccessURL)
	if err != nil {
		return webhook.Answer{}, err
	}
	header := http.Header{}
	now := time.Now()
	if err := webhook.Sign(header, what.signing(now), row.Message.String(), now, body); err != nil {
		return webhook.Answer{}, err
	}
	return s.client.Post(ctx, what.URL, header, body)
}

// problem says why an attempt failed.
func problem(answer webhook.Answer, err error) string {
	if err != nil {
		return shorten(err.Error())
	}
	if answer.Status >= 300 && answer.Status <= 399 {
		return fmt.Sprintf("the webhook answered with status %d: redirects are not followed", answer.Status)
	}
	return fmt.Sprintf("the webhook answered with status %d", answer.Status)
}

func shorten(text string) string {
	if len(text) > maxExcerpt {
		text = text[:maxExcerpt]
	}
	return database.Visible(text)
}

// jittered returns a time of up to a tenth longer.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/10+1) }
