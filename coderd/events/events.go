// Package events owns the stream that tells dashboard pages what changed, so that pages need not poll. The database announces
// each change with an id and an owner (migration 7). This package forwards it to users who may see the object, and knows
// nothing else about it. A page then reads the change through the API.
package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/pubsub"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

// channel is the channel on which the database's triggers announce changes.
const channel = "events"

// maxStreams bounds the streams of one user: one for each open page.
const maxStreams = 100

// resources maps each kind of event to the resource that a user must be allowed to read to receive it.
var resources = map[sdk.EventKind]rbac.Resource{
	sdk.EventWorkspace:   rbac.Workspace,
	sdk.EventBuild:       rbac.WorkspaceBuild,
	sdk.EventJob:         rbac.ProvisionerJob,
	sdk.EventTemplate:    rbac.Template,
	sdk.EventProvisioner: rbac.ProvisionerDaemon,
	sdk.EventAgent:       rbac.Agent,
	sdk.EventUser:        rbac.User,
}

// Change is an announcement from the database.
type Change struct {
	Kind  sdk.EventKind
	ID    uuid.UUID
	Owner uuid.UUID // zero if it belongs to the deployment
}

// ParseChange parses "<kind> <id> <owner>", where the owner may be empty.
func ParseChange(payload string) (Change, error) {
	kind, rest, _ := strings.Cut(payload, " ")
	id, owner, ok := strings.Cut(rest, " ")
	c := Change{Kind: sdk.EventKind(kind)}
	if _, known := resources[c.Kind]; !known || !ok {
		return Change{}, fmt.Errorf("parse event %q: no kind of ours", payload)
	}
	var err error
	if c.ID, err = parseID(id); err == nil && owner != "" {
		c.Owner, err = parseID(owner)
	}
	if err != nil {
		return Change{}, fmt.Errorf("parse event %q: %w", payload, err)
	}
	return c, nil
}

func parseID(text string) (uuid.UUID, error) {
	if len(text) != 36 {
		return uuid.Nil, errors.New("an id has 36 characters")
	}
	return uuid.Parse(text)
}

// String returns the form that ParseChange parses.
func (c Change) String() string {
	text := string(c.Kind) + " " + c.ID.String() + " "
	if c.Owner != uuid.Nil {
		text += c.Owner.String()
	}
	return text
}

// Options configures a Service. Every field is required.
type Options struct {
	PubSub pubsub.PubSub
	Logger *slog.Logger
	// Authenticate authenticates the user of an open stream again.
	Authenticate func(*http.Request) (rbac.Actor, error)
}

// Service serves event streams. Safe for concurrent use.
type Service struct {
	opts   Options
	cancel func() // ends the subscription

	life context.Context // ends with Stop
	stop context.CancelFunc

	mu      sync.Mutex
	streams map[*stream]struct{} // guarded by mu
}

// New subscribes to changes. Stop it before the PubSub.
func New(opts Options) *Service {
	s := &Service{opts: opts, streams: map[*stream]struct{}{}}
	s.life, s.stop = context.WithCancel(context.Background())
	s.cancel = opts.PubSub.Subscribe(channel, s.announce)
	return s
}

// Stop ends all streams without waiting for their requests. Pages open new ones elsewhere, or later. Stop is idempotent.
func (s *Service) Stop() {
	s.cancel()
	s.stop()
}

// Routes registers the stream.
func (s *Service) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/events", rbac.SignedIn, s.serve) // permission is checked for each event
}

// announce forwards a change to the streams. It does not block.
func (s *Service) announce(payload string) {
	var c Change
	if payload != "" {
		var err error
		if c, err = ParseChange(payload); err != nil {
			s.opts.Logger.Warn("event not understood", "err", err)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.streams {
		if payload == "" { // changes were missed
			stream.reset()
		} else {
			stream.push(c)
		}
	}
}

// Recheck checks again whether the user's streams may continue, and with which rights; uuid.Nil means all users. It does not
// wait for the results.
func (s *Service) Recheck(userID uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.streams {
		if userID == uuid.Nil || stream.user == userID {
			stream.recheck()
		}
	}
}

// add opens a stream for an actor.
func (s *Service) add(actor rbac.Actor) (*stream, error) {
	x := newStream(actor)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for other := range s.streams {
		if other.user == actor.UserID {
			n++
		}
	}
	if n >= maxStreams {
		return nil, fault.New(fault.RateLimited, "You have %d dashboard pages open.", n).WithDetail("Close some of them.")
	}
	s.streams[x] = struct{}{}
	return x, nil
}

func (s *Service) remove(x *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, x)
}
