package notifications

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// inboxPage is how many notifications one page contains.
	inboxPage = 25
	// maxFilter bounds the ids of one filter.
	maxFilter = 100
	// lookAnyway is how often a stream looks without being told.
	lookAnyway = 30 * time.Second
)

// insertInbox adds a message to its user's inbox.
func insertInbox(ctx context.Context, q *dbsqlc.Queries, m message) error {
	links := m.Links
	if links == nil {
		links = []Link{}
	}
	actions, err := json.Marshal(links)
	if err != nil {
		return fmt.Errorf("encode actions: %w", err)
	}
	return q.InsertInboxNotification(ctx, dbsqlc.InsertInboxNotificationParams{
		ID: m.row.ID, UserID: m.row.UserID, TemplateID: m.of.ID, Targets: m.row.Targets, Title: m.Title,
		Content: m.Markdown, ContentPlain: m.Text,
		Icon: m.of.Icon, Actions: actions,
	})
}

// filter selects notifications of the caller's inbox.
type filter struct {
	user               uuid.UUID
	status             string
	targets, templates []uuid.UUID
	plain              bool
}

func parseFilter(r *http.Request) (filter, error) {
	user, err := own(r.Context(), rbac.Read)
	if err != nil {
		return filter{}, err
	}
	query := r.URL.Query()
	f := filter{user: user, status: query.Get("read_status"), targets: []uuid.UUID{}, templates: []uuid.UUID{}}
	refused := fault.New(fault.Invalid, "The request for notifications is invalid.")
	switch f.status {
	case "":
		f.status = "all"
	case "all", "read", "unread":
	default:
		refused.WithField("read_status", "must be all, read or unread")
	}
	switch query.Get("format") {
	case "", "markdown":
	case "plaintext":
		f.plain = true
	default:
		refused.WithField("format", "must be markdown or plaintext")
	}
	for name, to := range map[string]*[]uuid.UUID{"targets": &f.targets, "templates": &f.templates} {
		for text := range strings.SplitSeq(query.Get(name), ",") {
			if text == "" {
				continue
			}
			id, err := uuid.Parse(text)
			if err != nil || len(*to) == maxFilter {
				refused.WithField(name, fmt.Sprintf("must be at most %d UUIDs, separated by commas", maxFilter))
				break
			}
			if t, known := find(id); known && name == "templates" {
				id = t.ID
			}
			*to = append(*to, id)
		}
	}
	if len(refused.Fields) > 0 {
		return f, refused
	}
	return f, nil
}

// json returns a row as clients see it.
func (f filter) json(row dbsqlc.InboxNotification) (sdk.InboxNotification, error) {
	out := sdk.InboxNotification{
		ID: row.ID, UserID: row.UserID, TemplateID: row.TemplateID, Targets: row.Targets, Title: row.Title,
		Content: row.Content,
		Icon:    row.Icon, ReadAt: row.ReadAt, CreatedAt: row.CreatedAt,
	}
	if f.plain {
		out.Content = row.ContentPlain
	}
	if err := json.Unmarshal(row.Actions, &out.Actions); err != nil {
		return out, fmt.Errorf("read actions of notification %s: %w", row.ID, err)
	}
	return out, nil
}

func (s *Service) listInbox(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	f, err := parseFilter(r)
	if err != nil {
		return err
	}
	p := dbsqlc.ListInboxParams{
		UserID: f.user, ReadStatus: f.status, Templates: f.templates, Targets: f.targets, MaxRows: inboxPage,
	}
	if text := r.URL.Query().Get("starting_before"); text != "" {
		id, err := uuid.Parse(text)
		if err != nil {
			return fault.New(fault.Invalid, "The request for notifications is invalid.").
				WithField("starting_before", "must be the UUID of a notification")
		}
		row, err := s.row(ctx, f.user, id)
		if err != nil {
			return err
		}
		p.Before = &row.Sequence
	}
	rows, err := s.opts.DB.ListInbox(ctx, p)
	if err != nil {
		return fmt.Errorf("list inbox: %w", err)
	}
	state, err := s.opts.DB.GetInboxState(ctx, f.user)
	if err != nil {
		return fmt.Errorf("count unread notifications: %w", err)
	}
	out := sdk.ListInboxNotificationsResponse{UnreadCount: int(state.Unread)}
	for _, row := range rows {
		n, err := f.json(row)
		if err != nil {
			return err
		}
		out.Notifications = append(out.Notifications, n)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// row returns a notification of a user, or the fault NotFound, also for another user's.
func (s *Service) row(ctx context.Context, user, id uuid.UUID) (dbsqlc.InboxNotification, error) {
	row, err := s.opts.DB.GetInboxNotification(ctx, dbsqlc.GetInboxNotificationParams{ID: id, UserID: user})
	if database.IsNotFound(err) {
		return row, noNotification()
	}
	if err != nil {
		return row, fmt.Errorf("read notification: %w", err)
	}
	return row, nil
}

func noNotification() error {
	return fault.New(fault.NotFound, "The notification does not exist, or is in another user's inbox.")
}

func (s *Service) putReadStatus(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	user, err := own(ctx, rbac.Update)
	if err != nil {
		return err
	}
	id, err := httpapi.PathUUID(r, "notification")
	if err != nil {
		return err
	}
	var req sdk.UpdateInboxNotificationReadStatusRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	row, err := s.opts.DB.SetInboxRead(ctx, dbsqlc.SetInboxReadParams{ID: id, UserID: user, IsRead: req.IsRead})
	if database.IsNotFound(err) {
		return noNotification()
	}
	if err != nil {
		return fmt.Errorf("mark notification: %w", err)
	}
	state, err := s.opts.DB.GetInboxState(ctx, user)
	if err != nil {
		return fmt.Errorf("count unread notifications: %w", err)
	}
	out := sdk.InboxNotificationResponse{UnreadCount: int(state.Unread)}
	if out.Notification, err = (filter{}).json(row); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) markAllRead(w http.ResponseWriter, r *http.Request) error {
	user, err := own(r.Context(), rbac.Update)
	if err != nil {
		return err
	}
	if _, err := s.opts.DB.SetInboxAllRead(r.Context(), user); err != nil {
		return fmt.Errorf("mark notifications: %w", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// watchInbox sends what comes into the caller's inbox after the stream has begun, which it has when the request is
// answered.
func (s *Service) watchInbox(w http.ResponseWriter, r *http.Request) error {
	f, err := parseFilter(r)
	if err != nil {
		return err
	}
	changed := notify.NewWake()
	defer s.opts.PubSub.Subscribe("inbox:"+f.user.String(), func(string) { changed.Poke() })()
	state, err := s.opts.DB.GetInboxState(r.Context(), f.user)
	if err != nil {
		return fmt.Errorf("read inbox: %w", err)
	}
	stream := httpapi.StreamOptions{Life: s.life, Logger: s.log, Failed: "the inbox cannot be watched now"}
	return httpapi.ServeWebsocket(w, r, stream, func(ctx context.Context, send func(...httpapi.Event) error) error {
		return s.follow(ctx, f, state.Newest, changed, send)
	})
}

func (s *Service) follow(
	ctx context.Context, f filter, last int64, changed notify.Wake, send func(...httpapi.Event) error,
) (err error) {
	ticker := time.NewTicker(lookAnyway)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
		if last, err = s.sendAfter(ctx, f, last, send); err != nil {
			return err
		}
	}
}

// sendAfter sends the notifications that came after the last one, and returns the last one then.
func (s *Service) sendAfter(
	ctx context.Context, f filter, last int64, send func(...httpapi.Event) error,
) (int64, error) {
	for {
		rows, err := s.opts.DB.ListInboxAfter(ctx, dbsqlc.ListInboxAfterParams{
			UserID: f.user, ReadStatus: f.status, Templates: f.templates, Targets: f.targets, After: last,
			MaxRows: inboxPage,
		})
		if err != nil {
			return last, fmt.Errorf("read inbox: %w", err)
		}
		if len(rows) == 0 {
			return last, nil
		}
		state, err := s.opts.DB.GetInboxState(ctx, f.user)
		if err != nil {
			return last, fmt.Errorf("read inbox: %w", err)
		}
		for _, row := range rows {
			out := sdk.InboxNotificationResponse{UnreadCount: int(state.Unread)}
			if out.Notification, err = f.json(row); err != nil {
				return last, err
			}
			if err := send(httpapi.Event{Data: out}); err != nil {
				return last, err
			}
			last = row.Sequence
		}
	}
}
