package events_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/events"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// change announces a change as the database's triggers do.
func change(t *testing.T, s *coderdtest.Server, c events.Change) {
	t.Helper()
	if err := s.PubSub.Publish(t.Context(), "events", c.String()); err != nil {
		t.Fatal(err)
	}
}

// everyones returns a change of a template that all members of the organization may read.
func everyones(s *coderdtest.Server, id uuid.UUID) events.Change {
	return events.Change{Kind: sdk.EventTemplate, ID: id, Organization: s.Org, Shared: s.Org.String()}
}

// reader is an open stream.
type reader struct {
	t        *testing.T
	accounts []uuid.UUID
	lines    *bufio.Scanner
	cancel   context.CancelFunc
	body     interface{ Close() error }
}

// open opens a stream, which ends after the test's patience at the latest, and waits for its first event.
func open(t *testing.T, s *coderdtest.Server, name string) *reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL.String()+"/api/v2/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "coder_session_token", Value: s.Token(name)}) // as an EventSource does
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: status %d, %v", name, resp.StatusCode, resp.Header)
	}
	x := &reader{t: t, accounts: []uuid.UUID{s.User("ann"), s.User("bob"), s.User("tom"), s.User("olga"), s.User("eve")}, lines: bufio.NewScanner(resp.Body), cancel: cancel, body: resp.Body}
	t.Cleanup(x.close)
	t.Cleanup(client.CloseIdleConnections)
	if got, _ := x.next(); got != "ready" {
		t.Fatalf("the first event is %q", got)
	}
	return x
}

func (x *reader) close() { x.cancel(); x.body.Close() }

// next returns the name and id of the next event, or "" if the stream has ended. It skips the test's own users, whose
// creation is announced.
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
			if event == "user" && slices.Contains(x.accounts, body.ID) {
				continue
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

// TestWhoHears checks that a change is sent only to users who may read the object.
func TestWhoHears(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, bob := s.User("ann"), s.User("bob")
	for _, c := range []struct {
		change events.Change
		heard  string // the readers who receive it, in order
	}{
		{events.Change{Kind: sdk.EventWorkspace, Owner: ann}, "ann tom olga"},
		{events.Change{Kind: sdk.EventBuild, Owner: ann}, "ann tom olga"},
		{events.Change{Kind: sdk.EventAgent, Owner: bob}, "bob tom olga"},
		{events.Change{Kind: sdk.EventJob, Owner: ann}, "ann tom olga"},
		{events.Change{Kind: sdk.EventTemplate, Shared: s.Org.String()}, "ann bob tom olga"},
		{events.Change{Kind: sdk.EventProvisioner}, "tom olga"},
		{events.Change{Kind: sdk.EventProvisioner, Owner: bob}, "bob tom olga"},
		{events.Change{Kind: sdk.EventUser, Owner: ann}, "ann olga"},
		{events.Change{Kind: sdk.EventWorkspace, Owner: ann, Shared: bob.String()}, "ann bob tom olga"},
		{events.Change{Kind: sdk.EventTemplate, Shared: uuid.NewString() + "," + bob.String()}, "bob tom olga"},
	} {
		c.change.ID = uuid.New()
		if c.change.Kind != sdk.EventUser {
			c.change.Organization = s.Org
		}
		t.Run(string(c.change.Kind)+" of "+c.heard, func(t *testing.T) {
			names := []string{"ann", "bob", "tom", "olga"}
			readers := map[string]*reader{}
			for _, name := range names {
				readers[name] = open(t, s, name)
			}
			end := uuid.New()
			change(t, s, c.change)
			change(t, s, everyones(s, end)) // all readers receive this
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
	s := coderdtest.New(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL.String()+"/api/v2/events", nil)
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

// TestSlowReader checks that each waiting change is sent once, and that too many of them become one event.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	x := open(t, s, "ann")
	first, again := uuid.New(), uuid.New()
	change(t, s, everyones(s, first))
	x.want("template", first)
	// The stream pauses now: everything until the end of the pause is one batch.
	for range 50 {
		change(t, s, everyones(s, again))
	}
	x.want("template", again)
	last := uuid.New()
	change(t, s, everyones(s, last))
	for id := again; id != last; { // the batch may have been split once
		if _, id = x.next(); id != again && id != last {
			t.Fatalf("%s was never announced", id)
		}
	}
	if err := s.PubSub.Publish(t.Context(), "events", ""); err != nil { // as if the database connection was lost
		t.Fatal(err)
	}
	x.want("reset", uuid.Nil)
	// In one transaction, so that they arrive together.
	s.Exec(`SELECT pg_notify('events', 'template ' || gen_random_uuid() || ' ') FROM generate_series(1, 2000)`)
	seen := 0
	for event := ""; event != "reset"; seen++ {
		if event, _ = x.next(); event == "" || seen > 2000 {
			t.Fatal("a reader that cannot follow was not told so")
		}
	}
}

// TestInboxes checks that only its user learns that an inbox changed, whatever the roles of others.
func TestInboxes(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, olga := open(t, s, "ann"), open(t, s, "olga")
	id, end := uuid.New(), uuid.New()
	s.Exec(`INSERT INTO inbox_notifications (id, user_id, template_id, title, content, content_plain) VALUES ($1, $2, $1, 'Hi', '', '')`, id, s.User("ann"))
	change(t, s, everyones(s, end))
	ann.want("inbox", id)
	ann.want("template", end)
	olga.want("template", end)
	s.Exec(`UPDATE inbox_notifications SET read_at = now()`)
	ann.want("inbox", id)
}

// TestSessionEnds checks that a stream outlives neither its session nor its reader's rights.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, bob, olga := open(t, s, "ann"), open(t, s, "bob"), open(t, s, "olga")
	stranger := s.User("ann")
	s.Exec(`DELETE FROM api_keys WHERE user_id = $1`, stranger)
	s.Exec(`UPDATE users SET roles = '{}' WHERE id = $1`, s.User("olga"))
	s.Events.Recheck(stranger)
	if event, _ := ann.next(); event != "" {
		t.Errorf("a stream went on with %q after its session", event)
	}
	s.Events.Recheck(uuid.Nil) // every user
	olga.want("reset", uuid.Nil)
	end := uuid.New()
	change(t, s, events.Change{Kind: sdk.EventWorkspace, ID: uuid.New(), Owner: stranger, Organization: s.Org})
	change(t, s, everyones(s, end))
	olga.want("template", end)
	bob.want("template", end)
	s.Events.Stop()
	if event, _ := bob.next(); event != "" {
		t.Errorf("a stream went on with %q after the service", event)
	}
}

func TestBoundPerUser(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	var all []*reader
	for range 100 {
		all = append(all, open(t, s, "ann"))
	}
	status := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL.String()+"/api/v2/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(sdk.SessionHeader, s.Token("ann"))
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
	open(t, s, "bob")
	all[0].close()
	testwait.Until(t, "room after a closed stream", func() error { return testwait.Equal(status(), http.StatusOK) })
}

func FuzzParseChange(f *testing.F) {
	f.Add("workspace 11111111-1111-4111-8111-111111111111 22222222-2222-4222-8222-222222222222 33333333-3333-4333-8333-333333333333 ")
	f.Add("template 11111111-1111-4111-8111-111111111111   22222222-2222-4222-8222-222222222222,33333333-3333-4333-8333-333333333333")
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
