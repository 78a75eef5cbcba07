package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/webhook"
)

const (
	maxURL     = 2048
	maxListed  = 100
	maxReplays = 10_000
)

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	rows, err := s.opts.DB.ListWebhooks(r.Context())
	if err != nil {
		return fmt.Errorf("list webhooks: %w", err)
	}
	out := sdk.List[sdk.Webhook]{}
	for _, row := range rows {
		out = append(out, show(row))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func show(row dbsqlc.Webhook) sdk.Webhook {
	return sdk.Webhook{
		ID: row.ID, Name: row.Name, Origin: row.Origin, Events: row.Events, Format: row.Format,
		CreatedAt:    row.CreatedAt,
		FailingSince: row.FailingSince, DisabledAt: row.DisabledAt, DisabledReason: row.DisabledReason,
	}
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	var req sdk.CreateWebhookRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if len(req.Events) == 0 {
		req.Events = sdk.List[string]{"*"}
	}
	if req.Format == "" {
		req.Format = sdk.WebhookStandard
	}
	row := dbsqlc.Webhook{ID: uuid.New(), Name: req.Name, Events: req.Events, Format: req.Format}
	what := secrets{URL: req.URL, Secret: webhook.NewSecret()}
	var err error
	if row.Origin, err = s.check(row, what.URL); err != nil {
		return err
	}
	if row.Sealed, err = s.seal(row.ID, what); err != nil {
		return err
	}
	var made dbsqlc.Webhook
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		if err := q.LockLifecycle(r.Context()); err != nil { // the number cannot grow meanwhile
			return err
		}
		n, err := q.CountWebhooks(r.Context())
		if err != nil {
			return err
		}
		if n >= MaxWebhooks {
			return fault.New(fault.Conflict, "There are %d webhooks, which is as many as a deployment can have.", n).
				WithDetail("Remove one that is not needed.")
		}
		if made, err = q.InsertWebhook(r.Context(), dbsqlc.InsertWebhookParams{
			ID: row.ID, Name: row.Name, Origin: row.Origin, Sealed: row.Sealed, Events: row.Events, Format: row.Format,
		}); err != nil {
			return named(err, row.Name)
		}
		return audit.Record(r.Context(), q, entry(dbsqlc.Webhook{}, made))
	})
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusCreated, sdk.CreateWebhookResponse{Webhook: show(made), Secret: what.Secret})
}

// named returns the fault for a name that another webhook has.
func named(err error, name string) error {
	if database.IsUniqueViolation(err, "webhooks_name") {
		return fault.New(fault.Conflict, "There is a webhook with the name %q.", name).WithField("name", "is in use")
	}
	return fmt.Errorf("store webhook: %w", err)
}

// entry returns the row of the audit log of a change. It does not have the URL.
func entry(before, after dbsqlc.Webhook) audit.Entry {
	e := audit.Entry{ID: after.ID, Name: after.Name, Diff: audit.Diff{}.Field("name", before.Name, after.Name).Field("origin", before.Origin, after.Origin).
		Field("events", strings.Join(before.Events, " "), strings.Join(after.Events, " ")).Field("format", before.Format, after.Format).
		Field("enabled", before.ID != uuid.Nil && before.DisabledAt == nil, after.ID != uuid.Nil && after.DisabledAt == nil)}
	if after.ID == uuid.Nil {
		e.ID, e.Name = before.ID, before.Name
	}
	if string(before.Sealed) != string(after.Sealed) {
		e.Diff = e.Diff.Secret("url")
	}
	return e
}

func (s *Service) update(w http.ResponseWriter, r *http.Request) error {
	id, err := httpapi.PathUUID(r, "webhook")
	if err != nil {
		return err
	}
	var req sdk.UpdateWebhookRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	var after dbsqlc.Webhook
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		before, err := q.LockWebhook(r.Context(), id)
		if err != nil {
			return absent(err)
		}
		next, err := s.changed(before, req)
		if err != nil {
			return err
		}
		if after, err = q.UpdateWebhook(r.Context(), dbsqlc.UpdateWebhookParams{
			ID: id, Name: next.Name, Origin: next.Origin, Sealed: next.Sealed, Events: next.Events, Format: next.Format,
			DisabledAt: next.DisabledAt, DisabledReason: next.DisabledReason, FailingSince: next.FailingSince,
		}); err != nil {
			return named(err, next.Name)
		}
		if err := audit.Record(r.Context(), q, entry(before, after)); err != nil {
			return err
		}
		return q.NotifyLifecycleNumbered(r.Context())
	})
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, show(after))
}

// How long messages are also signed with a secret that was replaced.
const (
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 7 * 24 * time.Hour
)

// replaceSecret gives a webhook another signing secret. Receivers have some time to learn it.
func (s *Service) replaceSecret(w http.ResponseWriter, r *http.Request) error {
	id, err := httpapi.PathUUID(r, "webhook")
	if err != nil {
		return err
	}
	var req sdk.ReplaceWebhookSecretRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	overlap := defaultOverlap
	if n := req.OverlapSeconds; n != nil {
		if *n < 0 || *n > int64(maxOverlap/time.Second) {
			return fault.New(fault.Invalid, "The overlap is not valid.").
				WithField("overlap_seconds", fmt.Sprintf("must be 0 to %d", int64(maxOverlap/time.Second)))
		}
		overlap = time.Duration(*n) * time.Second
	}
	var after dbsqlc.Webhook
	secret := webhook.NewSecret()
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		row, err := q.LockWebhook(r.Context(), id)
		if err != nil {
			return absent(err)
		}
		what, err := s.open(row.ID, row.Sealed)
		if err != nil {
			return unreadable()
		}
		what.Previous, what.PreviousUntil = what.Secret, time.Now().Add(overlap)
		if overlap == 0 {
			what.Previous, what.PreviousUntil = "", time.Time{}
		}
		what.Secret = secret
		if row.Sealed, err = s.seal(id, what); err != nil {
			return err
		}
		if after, err = q.UpdateWebhook(r.Context(), dbsqlc.UpdateWebhookParams{
			ID: id, Name: row.Name, Origin: row.Origin, Sealed: row.Sealed, Events: row.Events, Format: row.Format,
			DisabledAt: row.DisabledAt, DisabledReason: row.DisabledReason, FailingSince: row.FailingSince,
		}); err != nil {
			return fmt.Errorf("store webhook: %w", err)
		}
		return audit.Record(r.Context(), q, audit.Entry{
			ID: id, Name: row.Name, Diff: audit.Diff{}.Secret("secret"),
			Fields: map[string]any{"overlap_seconds": int64(overlap / time.Second)},
		})
	})
	if err != nil {
		return err
	}
	httpapi.NoStore(w.Header())
	return httpapi.Write(w, http.StatusOK, sdk.CreateWebhookResponse{Webhook: show(after), Secret: secret})
}

func unreadable() error {
	return fault.New(fault.Conflict, "The webhook cannot be read with the server's keys.").
		WithDetail("Remove it, and add it again.")
}

// changed returns a webhook as a request wants it.
func (s *Service) changed(row dbsqlc.Webhook, req sdk.UpdateWebhookRequest) (dbsqlc.Webhook, error) {
	what, err := s.open(row.ID, row.Sealed)
	if err != nil && (req.URL != nil || req.Name != nil || req.Events != nil || req.Format != nil) {
		return row, unreadable()
	}
	if req.Name != nil {
		row.Name = *req.Name
	}
	if req.Events != nil {
		row.Events = *req.Events
	}
	if req.Format != nil {
		row.Format = *req.Format
	}
	if err == nil {
		address := what.URL
		if req.URL != nil {
			address = *req.URL
		}
		if row.Origin, err = s.check(row, address); err != nil {
			return row, err
		}
		if address != what.URL {
			what.URL = address
			if row.Sealed, err = s.seal(row.ID, what); err != nil {
				return row, err
			}
		}
	}
	if req.Enabled != nil && *req.Enabled != (row.DisabledAt == nil) {
		row.DisabledAt, row.DisabledReason, row.FailingSince = nil, "", nil
		if !*req.Enabled {
			row.DisabledAt, row.DisabledReason = new(time.Now()), "an owner disabled it"
		}
	}
	return row, nil
}

func absent(err error) error {
	if database.IsNotFound(err) {
		return fault.New(fault.NotFound, "The webhook does not exist.").
			WithDetail("GET /api/v2/webhooks lists the webhooks.")
	}
	return fmt.Errorf("read webhook: %w", err)
}

var validName = lazyregexp.New(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)

// check returns the origin of the URL of a webhook, or a fault for what is not valid.
func (s *Service) check(row dbsqlc.Webhook, address string) (origin string, err error) {
	f := fault.New(fault.Invalid, "The webhook is not valid.")
	if !validName().MatchString(row.Name) {
		f = f.WithField("name",
			"must be 1 to 64 letters, digits, dots, dashes or underscores, and begin with a letter or digit")
	}
	origin, problem := s.origin(address)
	if problem != "" {
		f = f.WithField("url", problem)
	}
	if len(row.Events) == 0 || len(row.Events) > 64 {
		f = f.WithField("events", "must be 1 to 64 types")
	}
	for _, e := range row.Events {
		if !known(e) {
			f = f.WithField("events", fmt.Sprintf("has %q, which is no type of events: they are %s; KIND.* means all of a kind, and * all", shorten(e), strings.Join(sdk.LifecycleTypes, ", ")))
			break
		}
	}
	if !slices.Contains([]string{sdk.WebhookStandard, sdk.WebhookSlack, sdk.WebhookTeams}, row.Format) {
		f = f.WithField("format", "must be standard, slack or teams")
	}
	if len(f.Fields) > 0 {
		return "", f
	}
	return origin, nil
}

// known reports whether a webhook can choose a type: one that exists, all of a kind, or all.
func known(e string) bool {
	if kind, ok := strings.CutSuffix(e, ".*"); ok {
		return slices.ContainsFunc(sdk.LifecycleTypes,
			func(t string) bool { return strings.HasPrefix(t, kind+".") && !strings.Contains(kind, ".") })
	}
	return e == "*" || slices.Contains(sdk.LifecycleTypes, e)
}

// origin returns the scheme and host of a URL, or what is wrong with it.
func (s *Service) origin(address string) (origin, problem string) {
	u, err := url.Parse(address)
	switch {
	case err != nil || len(address) > maxURL || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.Opaque != "":
		return "", fmt.Sprintf("must start with https:// or http://, and have at most %d bytes", maxURL)
	case u.User != nil:
		return "", "must have no user name and password: the signature proves where messages come from"
	case u.Fragment != "":
		return "", "must have no fragment"
	case s.guard.CheckHost(u.Hostname()) != nil:
		return "", webhook.ErrForbidden.Error()
	}
	return u.Scheme + "://" + u.Host, ""
}

func (s *Service) remove(w http.ResponseWriter, r *http.Request) error {
	id, err := httpapi.PathUUID(r, "webhook")
	if err != nil {
		return err
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		before, err := q.LockWebhook(r.Context(), id)
		if err != nil {
			return absent(err)
		}
		if _, err := q.DeleteWebhook(r.Context(), id); err != nil {
			return fmt.Errorf("delete webhook: %w", err)
		}
		return audit.Record(r.Context(), q, entry(before, dbsqlc.Webhook{}))
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Service) deliveries(w http.ResponseWriter, r *http.Request) error {
	id, err := httpapi.PathUUID(r, "webhook")
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(r, "limit", maxListed, maxListed)
	if err != nil {
		return err
	}
	before, err := number(r.URL.Query().Get("before"), "before", 0)
	if err != nil {
		return err
	}
	if _, err := s.opts.DB.GetWebhook(r.Context(), id); err != nil {
		return absent(err)
	}
	rows, err := s.opts.DB.ListWebhookDeliveries(r.Context(), dbsqlc.ListWebhookDeliveriesParams{
		WebhookID: id, Before: before, MaxRows: int32(limit),
	})
	if err != nil {
		return fmt.Errorf("list deliveries: %w", err)
	}
	out := sdk.List[sdk.WebhookDelivery]{}
	for _, row := range rows {
		d := sdk.WebhookDelivery{
			ID: row.ID, EventID: row.Message, Sequence: row.Sequence, Type: row.Type, Status: row.Status,
			Attempts: row.Attempts, Replay: row.Replay,
			ResponseStatus: row.ResponseStatus, Excerpt: row.Excerpt, Error: row.Error, CreatedAt: row.CreatedAt,
			FinishedAt: row.FinishedAt,
		}
		if row.Status == "pending" {
			d.NextAt = &row.NextAt
		}
		out = append(out, d)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// number parses a number of an event or a delivery.
func number(text, name string, fallback int64) (int64, error) {
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.New(fault.Invalid, "%s cannot be %q.", name, shorten(text)).
			WithField(name, "must be a number from 0")
	}
	return n, nil
}

func (s *Service) test(w http.ResponseWriter, r *http.Request) error {
	id, err := httpapi.PathUUID(r, "webhook")
	if err != nil {
		return err
	}
	err = s.adding(r.Context(), func(q *dbsqlc.Queries) error {
		hook, err := q.LockWebhook(r.Context(), id)
		if err != nil {
			return absent(err)
		}
		if hook.DisabledAt != nil {
			return fault.New(fault.Conflict, "The webhook is disabled.").WithDetail("Enable it first.")
		}
		data, err := json.Marshal(sdk.LifecycleData{Webhook: hook.Name})
		if err != nil {
			return err
		}
		event, err := q.InsertTestEvent(r.Context(), dbsqlc.InsertTestEventParams{WebhookID: id, Data: data})
		if err != nil {
			return fmt.Errorf("write test event: %w", err)
		}
		return q.InsertTestDelivery(r.Context(), dbsqlc.InsertTestDeliveryParams{WebhookID: id, EventID: event})
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// adding runs what adds deliveries in a transaction, in the order that numbering keeps, and tells every server. The
// lock comes before those of rows: numbering holds it when it waits for the rows of webhooks.
func (s *Service) adding(ctx context.Context, add func(*dbsqlc.Queries) error) error {
	return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if err := q.LockLifecycle(ctx); err != nil {
			return fmt.Errorf("lock events: %w", err)
		}
		if err := add(q); err != nil {
			return err
		}
		return q.NotifyLifecycleNumbered(ctx)
	})
}

func (s *Service) replay(w http.ResponseWriter, r *http.Request) error {
	id, err := httpapi.PathUUID(r, "webhook")
	if err != nil {
		return err
	}
	var req sdk.ReplayWebhookRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if (req.Delivery > 0) == (req.Since != nil) || req.Delivery < 0 {
		return fault.New(fault.Invalid, "Say what to deliver again.").
			WithField("delivery", "either delivery or since must be given")
	}
	until := time.Now()
	if req.Until != nil {
		until = *req.Until
	}
	var n int64
	err = s.adding(r.Context(), func(q *dbsqlc.Queries) error {
		hook, err := q.LockWebhook(r.Context(), id)
		if err != nil {
			return absent(err)
		}
		if req.Delivery > 0 {
			n, err = q.ReplayWebhookDelivery(r.Context(), dbsqlc.ReplayWebhookDeliveryParams{
				ID: req.Delivery, WebhookID: id,
			})
			if err == nil && n == 0 {
				return fault.New(fault.NotFound, "The webhook has no delivery with the id %d.", req.Delivery)
			}
		} else {
			n, err = q.ReplayWebhookEvents(r.Context(), dbsqlc.ReplayWebhookEventsParams{
				WebhookID: id, Since: *req.Since, Until: until, MaxRows: maxReplays,
			})
		}
		if err != nil {
			return fmt.Errorf("add deliveries: %w", err)
		}
		return audit.Record(r.Context(), q, audit.Entry{ID: hook.ID, Name: hook.Name, Fields: map[string]any{
			"replayed": n,
		}})
	})
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.ReplayWebhookResponse{Count: n})
}
