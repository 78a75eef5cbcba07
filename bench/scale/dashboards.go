package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	gather = 150 * time.Millisecond // as the dashboard gathers events before it reads again
	builds = 50
)

// What the dashboard's page of workspaces reads, and which of it again after events (site/src/api/events.ts).
const (
	pageList      = "workspaces?q=owner%3Ame&limit=100&offset=0"
	pageMesh      = "mesh/peers"
	pageTemplates = "templates"
	pageInbox     = "notifications/inbox?format=plaintext&read_status=all"
)

var (
	pageReads = []string{"users/me", "organizations", "users/me/preferences", pageInbox, pageList, pageTemplates, pageMesh}
	touches   = map[sdk.EventKind][]string{
		sdk.EventWorkspace: {pageList, pageMesh},
		sdk.EventBuild:     {pageList},
		sdk.EventAgent:     {pageList, pageMesh},
		sdk.EventJob:       {pageList, pageTemplates},
		sdk.EventTemplate:  {pageTemplates},
		sdk.EventUser:      {"users/me", "organizations"},
		sdk.EventInbox:     {pageInbox},
	}
)

// browser is one user's open dashboard: an event stream, and what the page of workspaces shows, which it reads again
// after events.
type browser struct {
	client *sdk.Client
	events *atomic.Int64
	reads  *atomic.Int64
}

// read requests what a page shows.
func (br browser) read(ctx context.Context, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, br.client.URL().String()+"/api/v2/"+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set(sdk.SessionHeader, br.client.Token().Reveal())
	answer, err := br.client.HTTP().Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: %s", path, answer.Status)
	}
	br.reads.Add(1)
	return nil
}

// user creates a user with a session.
func (d *deployment) user(ctx context.Context, name string) (*sdk.Client, error) {
	if _, err := d.admin.CreateUser(ctx, sdk.CreateUserRequest{
		Email: name + "@example.com", Username: name, Password: password,
	}); err != nil {
		return nil, fmt.Errorf("create user %s: %w", name, err)
	}
	session, err := sdk.New(d.url, "", sdk.Options{}).Login(ctx,
		sdk.LoginRequest{Email: name + "@example.com", Password: password})
	if err != nil {
		return nil, fmt.Errorf("sign in as %s: %w", name, err)
	}
	return sdk.New(d.url, secret.Token(session.SessionToken), sdk.Options{}), nil
}

// run follows events until ctx ends. It calls ready when the stream is open and the page has read all that it shows.
func (br browser) run(ctx context.Context, ready func()) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, br.client.URL().JoinPath("/api/v2/events").String(), nil)
	if err != nil {
		return err
	}
	r.Header.Set(sdk.SessionHeader, br.client.Token().Reveal())
	answer, err := br.client.HTTP().Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("follow events: %s", answer.Status)
	}
	for _, path := range pageReads {
		if err := br.read(ctx, path); err != nil {
			return err
		}
	}
	kinds := make(chan sdk.EventKind, 100)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer close(kinds)
	failed := make(chan error, 1)
	reader.Go(func() { failed <- br.refresh(ctx, kinds) })
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		kind, ok := strings.CutPrefix(lines.Text(), "event: ")
		if !ok {
			continue
		}
		if kind == string(sdk.EventReady) {
			ready()
			continue
		}
		br.events.Add(1)
		select {
		case kinds <- sdk.EventKind(kind):
		case err := <-failed:
			return err
		}
	}
	return ctx.Err()
}

// refresh reads again what events touch, a moment after the first of them, until kinds is closed.
func (br browser) refresh(ctx context.Context, kinds <-chan sdk.EventKind) error {
	stale := map[string]bool{}
	var due <-chan time.Time
	for {
		select {
		case kind, open := <-kinds:
			if !open {
				return nil
			}
			for _, path := range touches[kind] {
				stale[path] = true
			}
			if due == nil && len(stale) > 0 {
				due = time.After(gather)
			}
		case <-due:
			for path := range stale {
				if err := br.read(ctx, path); err != nil {
					return err
				}
			}
			clear(stale)
			due = nil
		}
	}
}

// dashboards measures open dashboards, one for each user, while builds of some of the users run.
func (b *bench) dashboards(ctx context.Context) error {
	d, err := b.deployment(ctx)
	if err != nil {
		return err
	}
	users := make([]*sdk.Client, b.streams)
	if err := each(len(users), 4, func(i int) (err error) {
		users[i], err = d.user(ctx, fmt.Sprintf("user%d", i))
		return err
	}); err != nil {
		return err
	}
	stopProvisioners, err := d.provisioners(ctx, 2, 4)
	if err != nil {
		return err
	}
	defer stopProvisioners()

	open, cancel := context.WithCancel(ctx)
	var running, ready sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var events, reads atomic.Int64
	ready.Add(len(users))
	failed := make(chan error, len(users))
	for _, client := range users {
		running.Go(func() {
			once := sync.OnceFunc(ready.Done)
			defer once()
			if err := (browser{client, &events, &reads}).run(open, once); open.Err() == nil {
				failed <- fmt.Errorf("a dashboard's stream ended: %w", err)
			}
		})
	}
	ready.Wait()
	if err := pause(ctx, 2*time.Second); err != nil { // the server is quiet again
		return err
	}
	events.Store(0)
	reads.Store(0)
	before, err := d.usage()
	if err != nil {
		return err
	}
	if err := each(builds, 8, func(i int) error {
		_, err := d.workspace(ctx, users[i*len(users)/builds], "dev")
		return err
	}); err != nil {
		return err
	}
	if err := until(ctx, slow, "run the builds", func() (bool, error) { n, err := d.pending(ctx); return n == 0, err }); err != nil {
		return err
	}
	if err := pause(ctx, time.Second); err != nil { // the last events
		return err
	}
	after, err := d.usage()
	if err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
	}
	took, used := after.since(before)
	b.atMost(fmt.Sprintf("%d dashboards while %d builds run: server CPU", len(users), builds), used.server.Seconds()/took.Seconds(), "cores", 1,
		fmt.Sprintf("%.2g CPU seconds in %.2g s; database %.2g; %d events, %d answers read again",
			used.server.Seconds(), took.Seconds(), used.database.Seconds(), events.Load(), reads.Load()))
	return nil
}

// organization returns the id of the default organization and of the administrator.
func (d *deployment) organization(ctx context.Context) (organization, admin uuid.UUID, err error) {
	err = d.db.Pool.QueryRow(ctx, `SELECT organization_id, owner_id FROM workspaces LIMIT 1`).Scan(&organization, &admin)
	return organization, admin, err
}
