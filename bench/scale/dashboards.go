package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
)

const (
	gather = 150 * time.Millisecond // as the dashboard gathers events before it reads again
	builds = 50
)

// browser is one user's open dashboard: an event stream, and the list of workspaces, which it reads again after events.
type browser struct {
	client *sdk.Client
	events *atomic.Int64
	reads  *atomic.Int64
}

// user creates a user with a session.
func (d *deployment) user(ctx context.Context, name string) (*sdk.Client, error) {
	if _, err := d.admin.CreateUser(ctx, sdk.CreateUserRequest{Email: name + "@example.com", Username: name, Password: password}); err != nil {
		return nil, fmt.Errorf("create user %s: %w", name, err)
	}
	session, err := sdk.New(d.url, "", sdk.Options{}).Login(ctx, sdk.LoginRequest{Email: name + "@example.com", Password: password})
	if err != nil {
		return nil, fmt.Errorf("sign in as %s: %w", name, err)
	}
	return sdk.New(d.url, secret.Token(session.SessionToken), sdk.Options{}), nil
}

// run follows events until ctx ends. It calls ready when the stream is open.
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
	var gathering *time.Timer
	changed := make(chan struct{}, 1)
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			if _, err := br.client.Workspaces(ctx, sdk.WorkspacesQuery{Q: "owner:me", Limit: 25}); err == nil {
				br.reads.Add(1)
			}
		}
	})
	defer reader.Wait()
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
		poke := func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		if gathering == nil || !gathering.Reset(gather) {
			gathering = time.AfterFunc(gather, poke)
		}
	}
	return ctx.Err()
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
		fmt.Sprintf("%.2g CPU seconds in %.2g s; database %.2g; %d events, %d lists read again", used.server.Seconds(), took.Seconds(), used.database.Seconds(), events.Load(), reads.Load()))
	return nil
}

// organization returns the id of the default organization and of the administrator.
func (d *deployment) organization(ctx context.Context) (organization, admin uuid.UUID, err error) {
	err = d.db.Pool.QueryRow(ctx, `SELECT organization_id, owner_id FROM workspaces LIMIT 1`).Scan(&organization, &admin)
	return organization, admin, err
}
