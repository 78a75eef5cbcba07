package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	maxMetadataValue  = 2048             // bytes
	metadataKeepAlive = 15 * time.Second // between signs of life on an idle stream
	maxMetadataHubs   = 10_000           // agents whose last values are kept without a watcher
)

// metadataHub has the last values of one agent's metadata, and asks the agent for new ones while it has a watcher. It
// stores nothing: the agent keeps its values in memory, and so does the hub.
type metadataHub struct {
	mu       sync.Mutex // guards the fields below
	values   map[string]*agentpb.MetadataValue
	err      string // why there are no new values; "" while there are, or before the first answer
	watchers map[notify.Wake]bool
	stop     context.CancelFunc // ends the question; nil without a watcher
}

// hub returns the agent's hub and creates it if necessary.
func (s *Service) hub(agent uuid.UUID) *metadataHub {
	s.metadata.Lock()
	defer s.metadata.Unlock()
	h := s.metadata.byAgent[agent]
	if h == nil {
		if len(s.metadata.byAgent) >= maxMetadataHubs {
			for id, old := range s.metadata.byAgent { // any hub without a watcher: the agent has its values too
				if !old.watched() {
					delete(s.metadata.byAgent, id)
					break
				}
			}
		}
		h = &metadataHub{values: map[string]*agentpb.MetadataValue{}, watchers: map[notify.Wake]bool{}}
		s.metadata.byAgent[agent] = h
	}
	return h
}

func (h *metadataHub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers) > 0
}

// watch starts to watch the agent's metadata. changed receives after every change. The caller must call stop.
func (s *Service) watch(agent uuid.UUID, h *metadataHub) (changed notify.Wake, stop func()) {
	changed = notify.NewWake()
	if ctx := h.add(s.life, changed); ctx != nil {
		s.metadata.Lock()
		if !s.metadata.stopped {
			s.metadata.running.Go(func() { s.follow(ctx, agent, h) })
		}
		s.metadata.Unlock()
	}
	return changed, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, changed)
		if len(h.watchers) == 0 && h.stop != nil {
			h.stop()
			h.stop = nil
		}
	}
}

// add records a watcher. For the first watcher it returns the context of the question to ask, otherwise nil.
func (h *metadataHub) add(life context.Context, changed notify.Wake) (ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[changed] = true
	if h.stop == nil {
		ctx, h.stop = context.WithCancel(life)
	}
	return ctx
}

// stopMetadata ends all questions and waits. The service's life must have ended.
func (s *Service) stopMetadata() {
	s.metadata.Lock()
	s.metadata.stopped = true
	s.metadata.Unlock()
	s.metadata.running.Wait()
}

// follow asks the agent until ctx ends, and again after each failure.
func (s *Service) follow(ctx context.Context, agent uuid.UUID, h *metadataHub) {
	pause := backoff.Backoff{Min: 500 * time.Millisecond, Max: 10 * time.Second}
	for {
		err := s.followOnce(ctx, agent, h, pause.Reset)
		if ctx.Err() != nil {
			return
		}
		s.log.DebugContext(ctx, "cannot follow agent's metadata", "agent", agent, "err", err)
		h.update(func() { h.err = metadataProblem(err) })
		if pause.Wait(ctx) != nil {
			return
		}
	}
}

func metadataProblem(err error) string {
	if f := fault.As(askFault(err)); f != nil {
		return f.Message
	}
	return "the agent does not answer"
}

func (s *Service) followOnce(ctx context.Context, agent uuid.UUID, h *metadataHub, answered func()) error {
	client, closeIt := s.ask(agent)
	defer closeIt()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.WatchMetadata(ctx, connect.NewRequest(&agentpb.WatchMetadataRequest{}))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		answered()
		h.update(func() {
			h.err = ""
			for _, v := range stream.Msg().GetValues() {
				v.Value, v.Error = short(v.GetValue(), maxMetadataValue), short(v.GetError(), maxMetadataValue)
				if len(h.values) < maxMetadataItems || h.values[v.GetKey()] != nil {
					h.values[v.GetKey()] = v
				}
			}
		})
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// maxMetadataItems bounds how many items the server keeps for one agent.
const maxMetadataItems = 512

func (h *metadataHub) update(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	for c := range h.watchers {
		c.Poke()
	}
}

// metadataJSON returns every metadata item of the template, with its last value.
func (s *Service) metadataJSON(ctx context.Context, agent uuid.UUID, h *metadataHub) ([]sdk.AgentMetadata, error) {
	a, err := s.opts.DB.GetAgent(ctx, agent)
	if err != nil {
		return nil, fmt.Errorf("read agent: %w", err)
	}
	var items []metadataScript
	if err := json.Unmarshal(a.Metadata, &items); err != nil {
		return nil, fmt.Errorf("decode agent's metadata: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []sdk.AgentMetadata{}
	for _, item := range items {
		m := sdk.AgentMetadata{Description: sdk.AgentMetadataDescription{
			Key: item.Key, DisplayName: item.DisplayName, Script: item.Script, Interval: item.Interval,
			Timeout: item.Timeout,
		}}
		if v := h.values[item.Key]; v != nil {
			at := clampTime(v.GetCollectedAt().AsTime())
			m.Result = sdk.AgentMetadataResult{
				CollectedAt: at, Age: int64(time.Since(at) / time.Second), Value: v.GetValue(), Error: v.GetError(),
			}
		} else if h.err != "" {
			m.Result.Error = h.err
		}
		out = append(out, m)
	}
	return out, nil
}

// followMetadata sends everything first and after every change, and keep-alives, until ctx ends or send fails.
func (s *Service) followMetadata(ctx context.Context, agent uuid.UUID, send func(...httpapi.Event) error) error {
	h := s.hub(agent)
	changed, stop := s.watch(agent, h)
	defer stop()
	idle := time.NewTicker(metadataKeepAlive)
	defer idle.Stop()
	for {
		all, err := s.metadataJSON(ctx, agent, h)
		if err != nil {
			return err
		}
		if err := send(httpapi.Event{Type: "data", Data: all}); err != nil {
			return err
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
				waiting = false
			case <-idle.C:
				if err := send(httpapi.Event{Type: "ping"}); err != nil {
					return err
				}
			}
		}
	}
}

func (s *Service) watchMetadata(w http.ResponseWriter, r *http.Request) error {
	return s.serveMetadata(w, r, httpapi.ServeEvents)
}

func (s *Service) watchMetadataWebsocket(w http.ResponseWriter, r *http.Request) error {
	return s.serveMetadata(w, r, httpapi.ServeWebsocket)
}

func (s *Service) serveMetadata(w http.ResponseWriter, r *http.Request, serve httpapi.StreamServer) error {
	a, err := s.find(r, rbac.Read)
	if err != nil {
		return err
	}
	return serve(w, r, s.streams("the agent's metadata cannot be read now"), func(ctx context.Context, send func(...httpapi.Event) error) error {
		return s.followMetadata(ctx, a.ID, send)
	})
}
