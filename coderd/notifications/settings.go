package notifications

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Limits of custom notifications, in characters.
const (
	maxCustomTitle   = 120
	maxCustomMessage = 2000
)

func (s *Service) getSettings(w http.ResponseWriter, r *http.Request) error {
	paused, err := s.opts.DB.AreNotificationsPaused(r.Context())
	if err != nil {
		return fmt.Errorf("read notification settings: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.NotificationsSettings{NotifierPaused: paused})
}

func (s *Service) putSettings(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	var req sdk.NotificationsSettings
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		change := q.ResumeNotifications
		if req.NotifierPaused {
			change = q.PauseNotifications
		}
		n, err := change(ctx)
		if err != nil {
			return err
		}
		before := req.NotifierPaused == (n == 0)
		return audit.Record(ctx, q,
			audit.Entry{Name: "notifications", Diff: audit.Diff{}.Field("notifier_paused", before, req.NotifierPaused)})
	})
	if err != nil {
		return fmt.Errorf("store notification settings: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, req)
}

func (s *Service) dispatchMethods(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.NotificationMethodsResponse{
		Available: s.opts.Config.available(), Default: s.opts.Config.external(),
	})
}

func (s *Service) systemTemplates(w http.ResponseWriter, r *http.Request) error {
	return s.writeTemplates(w, r, false)
}

func (s *Service) customTemplates(w http.ResponseWriter, r *http.Request) error {
	return s.writeTemplates(w, r, true)
}

func (s *Service) writeTemplates(w http.ResponseWriter, r *http.Request, custom bool) error {
	rows, err := s.opts.DB.ListNotificationMethods(r.Context())
	if err != nil {
		return fmt.Errorf("list methods: %w", err)
	}
	methods := map[uuid.UUID]string{}
	for _, row := range rows {
		methods[row.TemplateID] = row.Method
	}
	out := sdk.List[sdk.NotificationTemplate]{}
	for _, t := range All() {
		if t.Custom != custom {
			continue
		}
		links := []Link{}
		for _, a := range t.Actions {
			links = append(links, Link{
				Label: a.Label, URL: strings.TrimSuffix(s.opts.AccessURL.String(), "/") + a.Path,
			})
		}
		actions, err := json.Marshal(links)
		if err != nil {
			return err
		}
		kind := "system"
		if t.Custom {
			kind = "custom"
		}
		out = append(out, sdk.NotificationTemplate{
			ID: t.ID, Name: t.Name, TitleTemplate: t.Title, BodyTemplate: t.Body, Actions: string(actions),
			Group: t.Group, Method: methods[t.ID],
			Kind: kind, EnabledByDefault: !t.Optional, Required: t.Always,
		})
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) putMethod(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	t, err := template(r.PathValue("template"))
	if err != nil {
		return err
	}
	var req sdk.UpdateNotificationTemplateMethod
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if available := s.opts.Config.available(); req.Method != "" && !slices.Contains(available, req.Method) {
		f := fault.New(fault.Invalid, "The method %q is not available.", shorten(req.Method, 64)).WithField("method",
			"must be empty or a configured method: smtp or webhook")
		return f.WithDetail("The server is configured for: %s.", strings.Join(append(available, "the inbox"), ", "))
	}
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		before, err := q.LockNotificationMethod(ctx, t.ID)
		if err != nil && !database.IsNotFound(err) {
			return err
		}
		if req.Method == "" {
			err = q.DeleteNotificationMethod(ctx, t.ID)
		} else {
			err = q.SetNotificationMethod(ctx, dbsqlc.SetNotificationMethodParams{TemplateID: t.ID, Method: req.Method})
		}
		if err != nil {
			return err
		}
		return audit.Record(ctx, q,
			audit.Entry{ID: t.ID, Name: t.Name, Diff: audit.Diff{}.Field("method", before, req.Method)})
	})
	if err != nil {
		return fmt.Errorf("store method: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The method is changed."})
}

func (s *Service) test(w http.ResponseWriter, r *http.Request) error {
	return s.sendSelf(w, r, Event{Template: Test})
}

func (s *Service) custom(w http.ResponseWriter, r *http.Request) error {
	var req sdk.CustomNotificationRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	refused := fault.New(fault.Invalid, "The notification cannot be sent.")
	if req.Content == nil {
		return refused.WithField("content", "is missing")
	}
	title, message := strings.TrimSpace(req.Content.Title), strings.TrimSpace(req.Content.Message)
	if n := utf8.RuneCountInString(title); n < 1 || n > maxCustomTitle {
		refused.WithField("content.title", fmt.Sprintf("must have 1 to %d characters", maxCustomTitle))
	}
	if n := utf8.RuneCountInString(message); n < 1 || n > maxCustomMessage {
		refused.WithField("content.message", fmt.Sprintf("must have 1 to %d characters", maxCustomMessage))
	}
	if len(refused.Fields) > 0 {
		return refused
	}
	return s.sendSelf(w, r, Event{Template: Custom, Labels: map[string]string{"title": title, "message": message}})
}

// sendSelf records an event for the caller, or tells why it would not arrive.
func (s *Service) sendSelf(w http.ResponseWriter, r *http.Request, e Event) error {
	ctx := r.Context()
	paused, err := s.opts.DB.AreNotificationsPaused(ctx)
	if err != nil {
		return fmt.Errorf("read notification settings: %w", err)
	}
	if paused {
		return fault.New(fault.Conflict, "Notifications are paused.").
			WithDetail("An administrator can resume them with: coder notifications resume")
	}
	e.To = []uuid.UUID{httpapi.ActorFrom(ctx).UserID}
	n, err := s.opts.Recorder.record(ctx, s.opts.DB.Queries, e)
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.New(fault.Conflict, "The notification was not sent: the server has no method to deliver it, or you turned this event off.").
			WithDetail("Operators configure mail, a webhook or the inbox; see docs/notifications.md.")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Service) getPreferences(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	return s.writePreferences(w, r, user.ID)
}

func (s *Service) writePreferences(w http.ResponseWriter, r *http.Request, user uuid.UUID) error {
	rows, err := s.opts.DB.ListNotificationPreferences(r.Context(), user)
	if err != nil {
		return fmt.Errorf("list preferences: %w", err)
	}
	out := sdk.List[sdk.NotificationPreference]{}
	for _, row := range rows {
		out = append(out, sdk.NotificationPreference{
			ID: row.TemplateID, Disabled: row.Disabled, UpdatedAt: row.UpdatedAt,
		})
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) putPreferences(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	user, err := s.opts.Accounts.Target(r, rbac.Update, rbac.User)
	if err != nil {
		return err
	}
	var req sdk.UpdateUserNotificationPreferences
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	disabled, err := parsePreferences(req)
	if err != nil {
		return err
	}
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		rows, err := q.ListNotificationPreferences(ctx, user.ID)
		if err != nil {
			return err
		}
		entry := audit.OfUser(user, user)
		for _, t := range All() {
			now, asked := disabled[t.ID]
			if !asked {
				continue
			}
			i := slices.IndexFunc(rows, func(row dbsqlc.NotificationPreference) bool { return row.TemplateID == t.ID })
			before := i >= 0 && rows[i].Disabled || i < 0 && t.Optional
			if err := q.SetNotificationPreference(ctx, dbsqlc.SetNotificationPreferenceParams{
				UserID: user.ID, TemplateID: t.ID, Disabled: now,
			}); err != nil {
				return err
			}
			entry.Diff = entry.Diff.Field("disabled notification: "+t.Name, before, now)
		}
		return audit.Record(ctx, q, entry)
	})
	if err != nil {
		return fmt.Errorf("store preferences: %w", err)
	}
	return s.writePreferences(w, r, user.ID)
}

// parsePreferences returns what a request turns off (true) and on (false).
func parsePreferences(req sdk.UpdateUserNotificationPreferences) (map[uuid.UUID]bool, error) {
	refused := fault.New(fault.Invalid, "The preferences are invalid.")
	const field = "template_disabled_map"
	out := map[uuid.UUID]bool{}
	if len(req.TemplateDisabledMap) == 0 {
		return nil, refused.WithField(field, "must name at least one template")
	}
	for text, disabled := range req.TemplateDisabledMap {
		t, err := template(text)
		if err != nil {
			return nil, refused.WithField(field, fmt.Sprintf("there is no template %q", shorten(text, 64)))
		}
		if disabled && t.Always {
			return nil, refused.WithField(field, fmt.Sprintf("%q cannot be turned off", t.Name))
		}
		out[t.ID] = disabled
	}
	return out, nil
}
