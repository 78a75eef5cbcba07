package events_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/coderd/events"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/pubsub"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world serves streams; actors are their tokens.
type world struct {
	*events.Service
	pubsub *pubsub.Memory
	url    string

	mu     sync.Mutex
	actors map[string]rbac.Actor
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{pubsub: &pubsub.Memory{}, actors: map[string]rbac.Actor{
		"ann":  {UserID: uuid.New(), Username: "ann"},
		"bob":  {UserID: uuid.New(), Username: "bob"},
		"tom":  {UserID: uuid.New(), Username: "tom", Roles: []string{rbac.RoleTemplateAdmin}},
		"olga": {UserID: uuid.New(), Username: "olga", Roles: []string{rbac.RoleOwner}},
	}}
	log := slog.New(slog.DiscardHandler)
	w.Service = events.New(events.Options{PubSub: w.pubsub, Logger: log, Authenticate: w.authenticate})
	mux := httpapi.NewMux(httpapi.Options{Logger: log, Authenticate: w.authenticate})
	w.Routes(mux)
	server := httptest.NewServer(mux)
	w.url = server.URL
	t.Cleanup(func() { w.Stop(); w.Stop(); server.Close(); w.pubsub.Close() })
	return w
}

func (w *world) authenticate(r *http.Request) (rbac.Actor, error) {
	token, _ := httpapi.Token(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	actor, ok := w.actors[token.Reveal()]
	if !ok {
		return rbac.Actor{}, fault.New(fault.Unauthenticated, "You are not signed in.")
	}
	return actor, nil
}

func (w *world) id(name string) uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.actors[name].UserID
}

func (w *world) change(t *testing.T, c events.Change) {
	t.Helper()
	if err := w.pubsub.Publish(t.Context(), "events", c.String()); err != nil {
		t.Fatal(err)
	}
}

// reader is an open stream.
type reader struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
	body   interface{ Close() error }
}

// open waits for the stream's first event.
func (w *world) open(t *testing.T, name string) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/api/v2/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "coder_session_token", Value: name}) // as an EventSource does
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: status %d, %v", name, resp.StatusCode, resp.Header)
	}
	x := &reader{t: t, lines: bufio.NewScanner(resp.Body), cancel: cancel, body: resp.Body}
	t.Cleanup(x.close)
	t.Cleanup(client.CloseIdleConnections)
	if got, _ := x.next(); got != "ready" {
		t.Fatalf("the first event is %q", got)
	}
	return x
}

func (x *reader) close() { x.cancel(); x.body.Close() }

// next is the next event's name and id; "" when the stream has ended.
func (x *reader) next() (event string, id uuid.UUID) {
	x.t.Helper()
	for x.lines.Scan() {
		line := x.lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var body sdk.Event
			if err := json.Unmarshal([]byte(data), &body); err != nil {
				x.t.Fatalf("data %q: %v", data, err)
			}
			return event, body.ID
		}
	}
	return "", uuid.Nil
}

func (x *reader) want(event string, id uuid.UUID) {
	x.t.Helper()
	if got, which := x.next(); got != event || which != id {
		x.t.Fatalf("got event %q %s, want %q %s", got, which, event, id)
	}
}

// TestWhoHears: a change is told to those who may read the thing, and to nobody else.
func TestWhoHears(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann, bob := w.id("ann"), w.id("bob")
	for _, c := range []struct {
		change events.Change
		heard  string // by whom, in order of readers
	}{
		{events.Change{Kind: sdk.EventWorkspace, Owner: ann}, "ann tom olga"},
		{events.Change{Kind: sdk.EventBuild, Owner: ann}, "ann tom olga"},
		{events.Change{Kind: sdk.EventAgent, Owner: bob}, "bob tom olga"},
		{events.Change{Kind: sdk.EventJob, Owner: ann}, "ann tom olga"},
		{events.Change{Kind: sdk.EventTemplate}, "ann bob tom olga"},
		{events.Change{Kind: sdk.EventProvisioner}, "tom olga"},
		{events.Change{Kind: sdk.EventProvisioner, Owner: bob}, "bob tom olga"},
		{events.Change{Kind: sdk.EventUser, Owner: ann}, "ann olga"},
	} {
		c.change.ID = uuid.New()
		t.Run(string(c.change.Kind)+" of "+c.heard, func(t *testing.T) {
			names := []string{"ann", "bob", "tom", "olga"}
			readers := map[string]*reader{}
			for _, name := range names {
				readers[name] = w.open(t, name)
			}
			end := uuid.New()
			w.change(t, c.change)
			w.change(t, events.Change{Kind: sdk.EventTemplate, ID: end}) // everybody hears this
			for _, name := range names {
				if strings.Contains(c.heard, name) {
					readers[name].want(string(c.change.Kind), c.change.ID)
				}
				readers[name].want("template", end)
			}
		})
	}
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/api/v2/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a session: %d", resp.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestSlowReader: what waits is told once each, and too much of it becomes one event.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.open(t, "ann")
	first, again := uuid.New(), uuid.New()
	w.change(t, events.Change{Kind: sdk.EventTemplate, ID: first})
	x.want("template", first)
	// The stream pauses now: what comes until its end is one batch.
	for range 50 {
		w.change(t, events.Change{Kind: sdk.EventTemplate, ID: again})
	}
	x.want("template", again)
	last := uuid.New()
	w.change(t, events.Change{Kind: sdk.EventTemplate, ID: last})
	for id := again; id != last; { // the batch may have been cut once
		if _, id = x.next(); id != again && id != last {
			t.Fatalf("%s was never announced", id)
		}
	}
	if err := w.pubsub.Publish(t.Context(), "events", ""); err != nil { // the database's connection was lost
		t.Fatal(err)
	}
	x.want("reset", uuid.Nil)
	for i := range 2000 {
		w.change(t, events.Change{Kind: sdk.EventTemplate, ID: uuid.NewSHA1(uuid.Nil, fmt.Append(nil, i))})
	}
	seen := 0
	for event := ""; event != "reset"; seen++ {
		if event, _ = x.next(); event == "" || seen > 2000 {
			t.Fatal("a reader that cannot follow was not told so")
		}
	}
}

// TestSessionEnds: a stream does not outlive its session, nor its reader's rights.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann, bob, olga := w.open(t, "ann"), w.open(t, "bob"), w.open(t, "olga")
	stranger := w.id("ann")
	w.mu.Lock()
	delete(w.actors, "ann")
	demoted := w.actors["olga"]
	demoted.Roles = nil
	w.actors["olga"] = demoted
	w.mu.Unlock()
	w.Recheck(stranger)
	if event, _ := ann.next(); event != "" {
		t.Errorf("a stream went on with %q after its session", event)
	}
	w.Recheck(uuid.Nil) // whoever
	olga.want("reset", uuid.Nil)
	end := uuid.New()
	w.change(t, events.Change{Kind: sdk.EventWorkspace, ID: uuid.New(), Owner: stranger})
	w.change(t, events.Change{Kind: sdk.EventTemplate, ID: end})
	olga.want("template", end)
	bob.want("template", end)
	w.Stop()
	if event, _ := bob.next(); event != "" {
		t.Errorf("a stream went on with %q after the service", event)
	}
}

func TestBoundPerUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []*reader
	for range 100 {
		all = append(all, w.open(t, "ann"))
	}
	status := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/api/v2/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Coder-Session-Token", "ann")
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := status(); got != http.StatusTooManyRequests {
		t.Errorf("one stream too many: %d", got)
	}
	w.open(t, "bob")
	all[0].close()
	deadline := time.Now().Add(30 * time.Second)
	for status() != http.StatusOK {
		if time.Now().After(deadline) {
			t.Fatal("a closed stream still counts")
		}
	}
}

func FuzzParseChange(f *testing.F) {
	f.Add("workspace 11111111-1111-4111-8111-111111111111 22222222-2222-4222-8222-222222222222")
	f.Add("template 11111111-1111-4111-8111-111111111111 ")
	f.Add("")
	f.Add("reset  ")
	f.Fuzz(func(t *testing.T, payload string) {
		c, err := events.ParseChange(payload)
		if err != nil {
			return
		}
		again, err := events.ParseChange(c.String())
		if err != nil || again != c {
			t.Errorf("%q: %v becomes %v, %v", payload, c, again, err)
		}
	})
}
