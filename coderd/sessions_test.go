package coderd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const firstPassword, nextPassword = "a long password 1", "a long password 2"

// person is a member with a running workspace, whose agent has an echo.
type person struct {
	name             string
	workspace, agent uuid.UUID
	build            uuid.UUID // goes on, so that its log does
}

const echoPort = 8080

func newPerson(t *testing.T, s *coderdtest.Server, name string, template uuid.UUID) *person {
	t.Helper()
	if _, err := s.As("olga").CreateUser(t.Context(), sdk.CreateUserRequest{Email: name + "@example.com", Username: name, Password: firstPassword}); err != nil {
		t.Fatal(err)
	}
	p := &person{name: name}
	var m *coderdtest.Member
	p.workspace, p.agent, m = s.RunningAgent(name, "dev", template, func(a *provisionerpb.Agent) {
		a.Apps[0].Url = fmt.Sprintf("http://localhost:%d/", appPort)
	})
	p.build = s.Get(p.workspace).LatestBuild.ID
	serveApp(t, m.Node)
	m.Serve(echoPort, coderdtest.Echo)
	m.Serve(meshport.Terminal, func(conn net.Conn) { io.Copy(io.Discard, conn) }) // a terminal in which nothing happens
	return p
}

// opened is everything that one session opened, by kind. Each channel is closed at the end of that thing.
type opened struct {
	session string
	ends    map[string]chan struct{}
	tunnel  net.Conn
	dial    func(ctx context.Context) error // a new connection through the mesh
	apps    map[string]*visitor             // by kind
}

// open opens one of each kind with a session.
func open(t *testing.T, s *coderdtest.Server, p *person, session string) *opened {
	t.Helper()
	o := &opened{session: session, ends: map[string]chan struct{}{}}
	shown := http.Header{sdk.SessionHeader: {session}}
	life, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	agent := "/api/v2/workspaceagents/" + p.agent.String()
	o.openStreams(life, t, s, p)
	for kind, path := range map[string]string{
		"watch by websocket":    "/api/v2/workspaces/" + p.workspace.String() + "/watch-ws",
		"metadata by websocket": agent + "/watch-metadata-ws",
		"agent's log":           agent + "/logs?follow",
		"build's log":           "/api/v2/workspacebuilds/" + p.build.String() + "/logs?follow",
		"terminal":              agent + "/pty?reconnect=" + uuid.NewString(),
	} {
		at, err := s.URL.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := websock.Dial(t.Context(), at, websock.DialOptions{Header: shown, ReadLimit: 1 << 20})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		o.until(t, kind, func() {
			for {
				if _, err := conn.ReadAny(life); err != nil {
					return
				}
			}
		}, func() { conn.CloseNow() })
	}
	m := s.Join(coderdtest.AsUser(session))
	if err := m.Client.Subscribe(t.Context(), p.agent); err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, coderdtest.Patience)
		defer cancel()
		return m.Node.Dial(ctx, "tcp", netip.AddrPortFrom(tailnet.Addr(p.agent), echoPort))
	}
	var err error
	if o.tunnel, err = dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.dial = func(ctx context.Context) error {
		conn, err := dial(ctx)
		if err == nil {
			conn.Close()
		}
		return err
	}
	o.until(t, "mesh connection", func() { <-m.Client.Done() }, func() { m.Client.Close() })
	o.openApps(t, s, p)
	daemon, err := s.JoinProvisioner(coderdtest.ProvisionerHeader("rack-"+keyOf(session), sdk.SessionHeader, session, sdk.ProvisionerTagsHeader, "scope=user"))
	if err != nil {
		t.Fatal(err)
	}
	running, leave := context.WithCancel(life)
	o.until(t, "provisioner", func() {
		select {
		case <-daemon.Done():
		case <-running.Done():
		}
	}, leave)
	return o
}

// openStreams opens what the server answers with events.
func (o *opened) openStreams(life context.Context, t *testing.T, s *coderdtest.Server, p *person) {
	t.Helper()
	for kind, path := range map[string]string{
		"event stream":    "/api/v2/events",
		"watch":           "/api/v2/workspaces/" + p.workspace.String() + "/watch",
		"metadata stream": "/api/v2/workspaceagents/" + p.agent.String() + "/watch-metadata",
	} {
		req, err := http.NewRequestWithContext(life, "GET", s.URL.String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(sdk.SessionHeader, o.session)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %v %+v", kind, err, resp)
		}
		first := bufio.NewReader(resp.Body)
		if _, err := first.ReadString('\n'); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		o.until(t, kind, func() { io.Copy(io.Discard, first) }, func() { resp.Body.Close() })
	}
}

// until notes when read returns.
func (o *opened) until(t *testing.T, kind string, read, end func()) {
	ended := make(chan struct{})
	o.ends[kind] = ended
	go func() { defer close(ended); read() }()
	t.Cleanup(func() { end(); <-ended })
}

// over fails unless everything has ended, also what the agent's end of the tunnel says.
func (o *opened) over(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
	defer cancel()
	for kind, ended := range o.ends {
		select {
		case <-ended:
		case <-ctx.Done():
			select {
			case <-ended: // in time, and looked at late
			default:
				t.Errorf("%s outlived its session", kind)
			}
		}
	}
	o.tunnel.SetReadDeadline(time.Now().Add(coderdtest.Patience))
	if _, err := io.Copy(io.Discard, o.tunnel); isTimeout(err) {
		t.Errorf("the tunnel outlived its session")
	}
	for kind, v := range o.apps {
		if v.reaches(t) {
			t.Errorf("%s: a new request after the end of its session reached the app", kind)
		}
	}
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// stands fails unless everything goes on.
func (o *opened) stands(t *testing.T) {
	t.Helper()
	for kind, ended := range o.ends {
		select {
		case <-ended:
			t.Errorf("%s of another session was cut", kind)
		default:
		}
	}
	o.tunnel.SetDeadline(time.Now().Add(coderdtest.Patience))
	if _, err := o.tunnel.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(o.tunnel, make([]byte, 5)); err != nil {
		t.Errorf("the other session's tunnel: %v", err)
	}
	if err := o.dial(t.Context()); err != nil {
		t.Errorf("a new connection of the other session: %v", err)
	}
	for kind, v := range o.apps {
		if !v.reaches(t) {
			t.Errorf("%s: a new request of the other session did not reach the app", kind)
		}
	}
}

// keyOf is the id of a session's token.
func keyOf(session string) string {
	id, _, _ := strings.Cut(session, "-")
	return id
}

// TestWhatASessionOpenedEndsWithIt: each kind of thing that a session opens, and each way in which a session ends. Another session
// of the same user goes on, where it does not end as well.
func TestWhatASessionOpenedEndsWithIt(t *testing.T) {
	s := coderdtest.Start(t, func(o *coderd.Options) { o.WildcardHost = appHosts })
	template := s.Template("process", nil).ID
	for name, c := range map[string]struct {
		end   func(p *person, victim, other string) error
		alone bool // the other session goes on
	}{
		"log-out": {func(_ *person, victim, _ string) error { return s.With(secret.Token(victim)).Logout(t.Context()) }, true},
		"deleted key": {func(_ *person, victim, other string) error {
			return s.With(secret.Token(other)).DeleteAPIKey(t.Context(), sdk.Me, keyOf(victim))
		}, true},
		"deleted by hand": {func(_ *person, victim, _ string) error {
			s.Exec(`DELETE FROM api_keys WHERE id = $1`, keyOf(victim))
			return nil
		}, true},
		"expired": {func(_ *person, victim, _ string) error {
			s.Exec(`UPDATE api_keys SET expires_at = now() + interval '1 second' WHERE id = $1`, keyOf(victim))
			return nil
		}, true},
		"new password": {func(_ *person, _, other string) error {
			return s.With(secret.Token(other)).UpdateUserPassword(t.Context(), sdk.Me, sdk.UpdateUserPasswordRequest{OldPassword: firstPassword, Password: nextPassword})
		}, true},
		"suspended": {func(p *person, _, _ string) error {
			_, err := s.As("olga").SuspendUser(t.Context(), p.name)
			return err
		}, false},
		"deleted user": {func(p *person, _, _ string) error {
			s.Exec(`UPDATE users SET deleted_at = now(), username = username || '-gone' WHERE id = $1`, s.User(p.name))
			return nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPerson(t, s, strings.ReplaceAll(name, " ", "-"), template)
			victim, other := s.Session(p.name).Reveal(), s.Session(p.name).Reveal()
			cut, kept := open(t, s, p, victim), open(t, s, p, other)
			if err := c.end(p, victim, other); err != nil {
				t.Fatal(err)
			}
			cut.over(t)
			if c.alone {
				kept.stands(t)
			} else {
				kept.over(t)
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
}
