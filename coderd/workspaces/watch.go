package workspaces

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/notify"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/websock"
)

const (
	// lookAnyway is how long a change that nobody announces (an agent's timeout) goes unnoticed. It is also the time between
	// signs of life on an idle stream.
	lookAnyway = 15 * time.Second
	// sendTimeout bounds one message to a slow reader.
	sendTimeout = 30 * time.Second
)

// event is a message to a watcher: the workspace as JSON, or nil as a sign of life.
type event func(workspace []byte) error

// follow sends the workspace now and whenever it changes, until ctx ends or a message cannot be sent. Changes that come
// quickly one after another may be sent as one.
func (s *Service) follow(ctx context.Context, viewer rbac.Actor, id uuid.UUID, send event) error {
	changed := notify.NewWake()
	defer s.deps.PubSub.Subscribe("workspace:"+id.String(), func(string) { changed.Poke() })()
	ticker := time.NewTicker(lookAnyway)
	defer ticker.Stop()
	var last []byte
	for {
		w, err := s.one(ctx, viewer.UserID, id)
		if err != nil {
			return err
		}
		if err := viewer.May(rbac.Read, rbac.Of(rbac.Workspace, w.OwnerID)); err != nil {
			return err
		}
		data, err := json.Marshal(w)
		if err != nil {
			return fmt.Errorf("encode workspace: %w", err)
		}
		if bytes.Equal(data, last) {
			data = nil
		} else {
			last = data
		}
		if err := send(data); err != nil {
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
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	// Whatever comes next on this connection has its own deadline.
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	err = s.follow(ctx, httpapi.ActorFrom(r.Context()), ws.ID, func(workspace []byte) error {
		if err := control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
			return fmt.Errorf("set deadline: %w", err)
		}
		text := "event: ping\n\n"
		if workspace != nil {
			text = "event: data\ndata: " + string(workspace) + "\n\n"
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return fmt.Errorf("send event: %w", err)
		}
		return control.Flush()
	})
	// The answer has begun: an error can only end it.
	if err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "watch ended", "workspace", ws.ID, "err", err)
	}
	return nil
}

func (s *Service) watchWebsocket(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return err
	}
	conn, err := websock.Accept(w, r, websock.AcceptOptions{})
	if err != nil {
		return nil // answered already
	}
	ctx, cancel := context.WithCancel(r.Context()) // ends when the reader leaves, and with the service
	defer context.AfterFunc(s.life, cancel)()
	var reader sync.WaitGroup
	reader.Go(func() { // takes close frames and pongs, until the connection is closed
		defer cancel()
		for {
			if _, err := conn.Read(context.WithoutCancel(r.Context())); err != nil {
				return
			}
		}
	})
	defer func() { conn.CloseNow(); reader.Wait() }()
	err = s.follow(ctx, httpapi.ActorFrom(r.Context()), ws.ID, func(workspace []byte) error {
		msg := sdk.WatchEvent{Type: "ping"}
		if workspace != nil {
			msg = sdk.WatchEvent{Type: "data", Data: json.RawMessage(workspace)}
		}
		send, cancel := context.WithTimeout(ctx, sendTimeout)
		defer cancel()
		return conn.WriteJSON(send, msg)
	})
	if ended := httpapi.SessionEnded(r.Context()); ended != nil {
		return conn.Close(websock.StatusPolicy, ended.Message)
	}
	if s.life.Err() != nil {
		return conn.Close(websock.StatusGoingAway, "the server is going down")
	}
	if err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "watch ended", "workspace", ws.ID, "err", err)
		reason := "the workspace cannot be watched any more"
		if f := fault.As(err); f != nil {
			reason = f.Message
		}
		return conn.Close(websock.StatusTryAgain, reason)
	}
	return nil
}
