// Package events owns the stream that tells dashboard pages what changed, so that pages need not poll. The database
// announces each change with an id and who may see it (migrations 7, 18 and 29). This package forwards it to users who
// may see the object, and knows nothing else about it. A page then reads the change through the API.
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

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
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
	sdk.EventInbox:       rbac.User,
}

// Change is an announcement from the database.
type Change struct {
	Kind  sdk.EventKind
	ID    uuid.UUID
	Owner uuid.UUID // zero if no user owns it
	// Organization is zero if the object belongs to the deployment.
	Organization uuid.UUID
	// Shared lists the ids of users and groups with whom the object is shared, separated by commas.
	Shared string
}

// ParseChange parses "<kind> <id> <owner> <organization> <ids>", where all but the kind and id may be empty.
func ParseChange(payload string) (Change, error) {
	fields := strings.Split(payload, " ")
	if len(fields) != 5 {
		return Change{}, fmt.Errorf("parse event %q: want 5 fields", payload)
	}
	c := Change{Kind: sdk.EventKind(fields[0]), Shared: fields[4]}
	if _, known := resources[c.Kind]; !known {
		return Change{}, fmt.Errorf("parse event %q: unknown kind", payload)
	}
	var err error
	if c.ID, err = parseID(fields[1]); err == nil && fields[2] != "" {
		c.Owner, err = parseID(fields[2])
	}
	if err == nil && fields[3] != "" {
		c.Organization, err = parseID(fields[3])
	}
	for id := range strings.SplitSeq(c.Shared, ",") {
		if err == nil && c.Shared != "" {
			_, err = parseID(id)
		}
	}
	if err != nil {
		return Change{}, fmt.Errorf("parse event %q: %w", payload, err)
	}
	return c, nil
}

// object returns what changed as an object of permissions.
func (c Change) object() rbac.Object {
	o := rbac.Of(resources[c.Kind], c.Owner).In(c.Organization)
	if c.Kind == sdk.EventWorkspace || c.Kind == sdk.EventTemplate {
		o.ID = c.ID
	}
	if c.Shared != "" {
		o.Shared = rbac.Sharing{}
		for text := range strings.SplitSeq(c.Shared, ",") {
			if id, err := parseID(text); err == nil {
				o.Shared[id] = rbac.LevelUse // reading requires no more
			}
		}
	}
	return o
}

func parseID(text string) (uuid.UUID, error) {
	if len(text) != 36 {
		return uuid.Nil, errors.New("an id has 36 characters")
	}
	return uuid.Parse(text)
}

// String returns the form that ParseChange parses.
func (c Change) String() string {
	text := func(id uuid.UUID) string {
		if id == uuid.Nil {
			return ""
		}
		return id.String()
	}
	return strings.Join([]string{string(c.Kind), c.ID.String(), text(c.Owner), text(c.Organization), c.Shared}, " ")
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

// Stop ends all streams without waiting for their requests. Pages open new ones elsewhere, or later. Stop is
// idempotent.
func (s *Service) Stop() {
	s.cancel()
	s.stop()
}

// Routes registers the stream.
func (s *Service) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/events", rbac.AnyToken, s.serve) // permission is checked for each event
}

// announce forwards a change to the streams. It does not block.
func (s *Service) announce(payload string) {
	var c Change
	var object rbac.Object
	if payload != "" {
		var err error
		if c, err = ParseChange(payload); err != nil {
			s.opts.Logger.Warn("event not understood", "err", err)
			return
		}
		object = c.object()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.streams {
		if payload == "" { // changes were missed
			stream.reset()
		} else {
			stream.push(c, object)
		}
	}
}

// Recheck checks again whether the user's streams may continue, and with which rights; uuid.Nil means all users. It
// does not wait for the results.
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
		return nil, fault.New(fault.RateLimited, "You have %d dashboard pages open.", n).
			WithDetail("Close some of them.")
	}
	s.streams[x] = struct{}{}
	return x, nil
}

func (s *Service) remove(x *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, x)
}
