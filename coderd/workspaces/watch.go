package workspaces

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

// lookAnyway is how long a change without a notification (an agent's timeout) goes unnoticed. It is also the time
// between keep-alives on an idle stream.
const lookAnyway = 15 * time.Second

// follow sends the workspace now and whenever it changes, until ctx ends or a message cannot be sent. It may send
// changes in quick succession as one.
func (s *Service) follow(
	ctx context.Context, viewer rbac.Actor, id uuid.UUID, send func(...httpapi.Event) error,
) error {
	changed := notify.NewWake()
	defer s.opts.PubSub.Subscribe("workspace:"+id.String(), func(string) { changed.Poke() })()
	ticker := time.NewTicker(lookAnyway)
	defer ticker.Stop()
	var last []byte
	for {
		w, err := s.one(ctx, viewer, id)
		if err != nil {
			return err
		}
		data, err := json.Marshal(w)
		if err != nil {
			return fmt.Errorf("encode workspace: %w", err)
		}
		event := httpapi.Event{Type: "ping"}
		if !bytes.Equal(data, last) {
			event, last = httpapi.Event{Type: "data", Data: json.RawMessage(data)}, data
		}
		if err := send(event); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
}

func (s *Service) watch(w http.ResponseWriter, r *http.Request) error {
	return s.serveWatch(w, r, httpapi.ServeEvents)
}

func (s *Service) watchWebsocket(w http.ResponseWriter, r *http.Request) error {
	return s.serveWatch(w, r, httpapi.ServeWebsocket)
}

func (s *Service) serveWatch(w http.ResponseWriter, r *http.Request, serve httpapi.StreamServer) error {
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return err
	}
	viewer := httpapi.ActorFrom(r.Context())
	stream := httpapi.StreamOptions{Life: s.life, Logger: s.log, Failed: "the workspace cannot be watched now"}
	return serve(w, r, stream, func(ctx context.Context, send func(...httpapi.Event) error) error {
		return s.follow(ctx, viewer, ws.ID, send)
	})
}
