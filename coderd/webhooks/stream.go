package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// pingEvery keeps proxies from mistaking a silent stream for a dead one.
	pingEvery = 15 * time.Second
	// maxRead bounds the events of one read.
	maxRead = 200
	// maxStreams bounds the streams of one user: each reads the events from the database.
	maxStreams = 10
)

// resources maps each kind of event to the resource that a reader must be allowed to read.
var resources = map[string]rbac.Resource{
	"workspace": rbac.Workspace, "build": rbac.WorkspaceBuild, "agent": rbac.Agent, "user": rbac.User, "template": rbac.Template,
}

// stream answers with events after the number that the reader names, and those that follow.
func (s *Service) stream(w http.ResponseWriter, r *http.Request) error {
	user := httpapi.ActorFrom(r.Context()).UserID
	bounds, err := s.opts.DB.GetLifecycleBounds(r.Context())
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	last := r.Header.Get("Last-Event-ID") // of a reader that comes back
	if last == "" {
		last = r.URL.Query().Get("after")
	}
	after, err := number(last, "after", bounds.Newest)
	if err != nil {
		return err
	}
	if err := s.enter(user); err != nil {
		return err
	}
	defer s.leave(user)
	opts := httpapi.StreamOptions{Life: s.life, Logger: s.log, Failed: "events cannot be followed now"}
	return httpapi.ServeEvents(w, r, opts, func(ctx context.Context, send func(...httpapi.Event) error) error {
		if after > 0 && after+1 < bounds.Oldest {
			if err := send(httpapi.Event{Type: "gap", Data: map[string]int64{"oldest": bounds.Oldest}}); err != nil {
				return err
			}
		}
		return s.follow(ctx, r, after, send)
	})
}

func (s *Service) enter(user uuid.UUID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers[user] >= maxStreams {
		return fault.New(fault.RateLimited, "You follow events %d times already.", maxStreams).
			WithDetail("Stop some of these programs.")
	}
	s.readers[user]++
	return nil
}

func (s *Service) leave(user uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers[user]--; s.readers[user] == 0 {
		delete(s.readers, user)
	}
}

// numbered returns a channel that is closed when more events have a number.
func (s *Service) numbered() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes.Changed()
}

// follow sends what comes after a number. The reader is authenticated for each batch, so that its rights are the
// present ones.
func (s *Service) follow(ctx context.Context, r *http.Request, after int64, send func(...httpapi.Event) error) error {
	if err := send(httpapi.Event{Type: "ready", Data: map[string]int64{"after": after}}); err != nil {
		return err
	}
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		changed := s.numbered() // before the read, so that nothing is missed between the two
		rows, err := s.opts.DB.ListLifecycleEvents(ctx, dbsqlc.ListLifecycleEventsParams{
			After: after, MaxRows: maxRead,
		})
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if len(rows) > 0 {
			actor, err := s.opts.Authenticate(r)
			if err != nil {
				return fmt.Errorf("check session: %w", err) // if this is only temporary, the reader comes back soon
			}
			all, err := visible(actor, rows)
			if err != nil {
				return err
			}
			after = rows[len(rows)-1].Sequence
			if len(all) > 0 {
				if err := send(all...); err != nil {
					return err
				}
			}
		}
		if len(rows) == maxRead {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ping.C:
			if err := send(httpapi.Event{}); err != nil {
				return err
			}
		}
	}
}

// visible returns the events that a reader may see now. Who changed something is for readers of the audit log; who
// requested a build is not secret.
func visible(actor rbac.Actor, rows []dbsqlc.ListLifecycleEventsRow) ([]httpapi.Event, error) {
	var all []httpapi.Event
	for _, row := range rows {
		resource, known := resources[row.Kind]
		if !known {
			continue
		}
		o := rbac.Of(resource, row.OwnerID).In(row.OrganizationID)
		if resource == rbac.Workspace || resource == rbac.Template {
			o.ID = row.Subject
		}
		o.Shared = rbac.Sharing{}
		for _, id := range row.Shared {
			o.Shared[id] = rbac.LevelUse // reading requires no more
		}
		if actor.May(rbac.Read, o) != nil {
			continue
		}
		e, err := decode(row.Message, row.Sequence, row.Type, row.CreatedAt, row.Data)
		if err != nil {
			return nil, err
		}
		if row.Kind != "build" && actor.May(rbac.Read, rbac.Of(rbac.AuditLog, uuid.Nil).In(row.OrganizationID)) != nil {
			e.Data.Actor, e.Data.ActorID = "", nil
		}
		all = append(all, httpapi.Event{ID: strconv.FormatInt(e.Sequence, 10), Type: e.Type, Data: e})
	}
	return all, nil
}

// decode returns an event as others get it: what its row has besides is left out.
func decode(id uuid.UUID, sequence int64, kind string, at time.Time, data []byte) (sdk.LifecycleEvent, error) {
	e := sdk.LifecycleEvent{ID: id, Sequence: sequence, Type: kind, Timestamp: at.UTC()}
	if err := json.Unmarshal(data, &e.Data); err != nil {
		return e, fmt.Errorf("read event %d: %w", sequence, err)
	}
	return e, nil
}
