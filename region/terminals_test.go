//go:build linux

package region_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/region"
)

// terminalURL is the address of an agent's terminals at a proxy.
func terminalURL(proxy *url.URL, agent uuid.UUID) string {
	return "ws://" + proxy.Host + strings.Replace(region.TerminalPath, "{agent}", agent.String(), 1)
}

// terminalToken asks for a token as a user's page does. It returns the status of the answer, too.
func (w *world) terminalToken(user, origin, address string, agent uuid.UUID) (secret.Token, int) {
	w.t.Helper()
	body, err := json.Marshal(sdk.TerminalTokenRequest{URL: address, AgentID: agent})
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.URL.String()+"/api/v2/applications/reconnecting-pty-signed-token", bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if user != "" {
		r.Header.Set("Coder-Session-Token", w.Token(user))
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var got sdk.TerminalTokenResponse
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		w.t.Fatal(err)
	}
	return secret.Token(got.SignedToken), resp.StatusCode
}

// page is the dashboard's origin.
func (w *world) page() string { return w.URL.Scheme + "://" + w.URL.Host }

// openTerminal opens a terminal at a proxy as a page does.
func (w *world) openTerminal(proxy *url.URL, agent uuid.UUID, token secret.Token, origin string, terminal uuid.UUID) (*websock.Conn, error) {
	w.t.Helper()
	u, err := url.Parse(terminalURL(proxy, agent))
	if err != nil {
		w.t.Fatal(err)
	}
	u.RawQuery = url.Values{"reconnect": {terminal.String()}, "height": {"24"}, "width": {"80"}, sdk.TerminalTokenParam: {token.Reveal()}}.Encode()
	header := http.Header{}
	if origin != "" {
		header.Set("Origin", origin)
	}
	ws, err := websock.Dial(w.t.Context(), u, websock.DialOptions{Header: header, ReadLimit: 1 << 20})
	if err == nil {
		w.t.Cleanup(func() { ws.CloseNow() })
	}
	return ws, err
}

// terminal opens ann's terminal at the world's proxy.
func (w *world) terminal(id uuid.UUID) *websock.Conn {
	w.t.Helper()
	token, status := w.terminalToken("ann", w.page(), terminalURL(w.proxy, w.agent), w.agent)
	if status != http.StatusOK {
		w.t.Fatalf("a token: %d", status)
	}
	ws, err := w.openTerminal(w.proxy, w.agent, token, w.page(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return ws
}

// types sends keystrokes, and waits for an output that contains a text.
func (w *world) types(ws *websock.Conn, keys, want string) {
	w.t.Helper()
	if keys != "" {
		data, err := json.Marshal(map[string]string{"data": keys})
		if err != nil {
			w.t.Fatal(err)
		}
		if err := ws.Write(w.t.Context(), data); err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	var shown strings.Builder
	for !strings.Contains(shown.String(), want) {
		data, err := ws.ReadAny(ctx)
		if err != nil {
			w.t.Fatalf("%q after %q: %v", shown.String(), keys, err)
		}
		shown.Write(data)
	}
}

// closed waits for the end of a terminal.
func (w *world) closed(ws *websock.Conn) *websock.CloseError {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 20*time.Second)
	defer cancel()
	for {
		_, err := ws.ReadAny(ctx)
		if end, ok := errors.AsType[*websock.CloseError](err); ok {
			return end
		}
		if err != nil {
			w.t.Fatalf("the terminal ended with %v", err)
		}
	}
}

func TestTerminalAtRegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wildcard)
	id := uuid.New()
	first := w.terminal(id)
	w.types(first, "echo a$((6*7))b\r", "a42b")
	w.types(first, "kept=yes; echo s$((6*7))t\r", "s42t")
	var row sdk.ConnectionLog
	logged := func(done func(sdk.ConnectionLog) bool) func() error {
		return func() error {
			list, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range list.ConnectionLogs {
				if c.Type == "reconnecting_pty" && c.Region == "eu" && c.Username == "ann" && c.AgentName == "main" && c.IP == "127.0.0.1" && done(c) {
					row = c
					return nil
				}
			}
			return fmt.Errorf("the log is %+v", list.ConnectionLogs)
		}
	}
	testwait.Until(t, "an open row", logged(func(c sdk.ConnectionLog) bool { return c.DisconnectTime == nil }))
	open := row.ID
	// The page is reloaded: the session is the same one.
	first.CloseNow()
	testwait.Until(t, "the row's end", logged(func(c sdk.ConnectionLog) bool { return c.ID == open && c.DisconnectTime != nil }))
	if row.BytesIn == 0 || row.BytesOut == 0 || row.DisconnectReason != "closed by the client" {
		t.Errorf("the row is %+v", row)
	}
	second := w.terminal(id)
	w.types(second, "echo $kept-$kept\r", "yes-yes")
	if err := second.Write(t.Context(), []byte(`{"data":"exit 3\r"}`)); err != nil {
		t.Fatal(err)
	}
	if end := w.closed(second); end.Status != websock.StatusNormal || end.Reason != "exit status 3" {
		t.Errorf("the terminal ended with %v", end)
	}
	testwait.Until(t, "the second row's end", logged(func(c sdk.ConnectionLog) bool { return c.ID != open && c.DisconnectReason == "exit status 3" }))
}

// TestWhoGetsTerminalTokens: users who may not connect get none, and neither does an address that is not a terminal's at a region.
func TestWhoGetsTerminalTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wildcard)
	_, agent2 := w.RunningRow("ann", "second")
	w.runAgent(agent2)
	here := terminalURL(w.proxy, w.agent)
	for _, x := range []struct {
		user, address string
		agent         uuid.UUID
		want          int
	}{
		{"", here, w.agent, 401},
		{"bob", here, w.agent, 404},
		{"olga", here, w.agent, 404},
		{"ann", here, agent2, 400},
		{"ann", here, uuid.New(), 404},
		{"ann", "ws://evil.example" + strings.TrimPrefix(here, "ws://"+w.proxy.Host), w.agent, 400},
		{"ann", "ws://x@" + strings.TrimPrefix(here, "ws://"), w.agent, 400},
		{"ann", strings.Replace(here, "ws://", "wss://", 1), w.agent, 400},
		{"ann", here + "/../x", w.agent, 400},
		{"ann", here + "?x=1", w.agent, 400},
		{"ann", strings.Replace(here, w.proxy.Host, w.URL.Host, 1), w.agent, 400},
		{"ann", "http://[", w.agent, 400},
	} {
		if got, status := w.terminalToken(x.user, w.page(), x.address, x.agent); status != x.want || got != "" {
			t.Errorf("%q asks for %s: %d %v, want %d", x.user, x.address, status, got, x.want)
		}
	}
}

// A token opens one terminal, once: at the proxy, of the agent and from the page that it is for.
func TestTerminalTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wildcard)
	_, agent2 := w.RunningRow("ann", "second")
	w.runAgent(agent2)
	_, other, _, _ := w.runProxy("us", "*.us.example.com")
	token := func() secret.Token {
		t.Helper()
		token, status := w.terminalToken("ann", w.page(), terminalURL(w.proxy, w.agent), w.agent)
		if status != http.StatusOK {
			t.Fatalf("a token: %d", status)
		}
		return token
	}
	used := token()
	if _, err := w.openTerminal(w.proxy, w.agent, used, w.page(), uuid.New()); err != nil {
		t.Fatal(err)
	}
	tampered := token()
	flipped := "A"
	if strings.HasSuffix(tampered.Reveal()[:len(tampered.Reveal())-3], "A") {
		flipped = "B"
	}
	code := func() secret.Token { // of an app
		ann := w.browser("ann")
		if status, body := ann.open(host("code") + "/"); status != http.StatusOK {
			t.Fatalf("the app: %d %s", status, body)
		}
		return secret.Token(ann.cookie("code"))
	}()
	for name, x := range map[string]struct {
		proxy  *url.URL
		agent  uuid.UUID
		token  secret.Token
		origin string
	}{
		"replayed":           {w.proxy, w.agent, used, w.page()},
		"at another proxy":   {other, w.agent, token(), w.page()},
		"of another agent":   {w.proxy, agent2, token(), w.page()},
		"of another page":    {w.proxy, w.agent, token(), "http://evil.example"},
		"of a sandbox":       {w.proxy, w.agent, token(), "null"},
		"of the proxy":       {w.proxy, w.agent, token(), "http://" + w.proxy.Host},
		"without a page":     {w.proxy, w.agent, token(), ""},
		"tampered":           {w.proxy, w.agent, tampered[:len(tampered)-4] + secret.Token(flipped) + tampered[len(tampered)-3:], w.page()},
		"none":               {w.proxy, w.agent, "", w.page()},
		"a session":          {w.proxy, w.agent, secret.Token(w.Token("ann")), w.page()},
		"an app's":           {w.proxy, w.agent, code, w.page()},
		"of a missing agent": {w.proxy, uuid.New(), token(), w.page()},
	} {
		if _, err := w.openTerminal(x.proxy, x.agent, x.token, x.origin, uuid.New()); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	// At a server there is a session instead: the token is worth nothing there.
	server, err := url.Parse(terminalURL(w.URL, w.agent) + "?" + url.Values{"reconnect": {uuid.NewString()}, sdk.TerminalTokenParam: {token().Reveal()}}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := websock.Dial(t.Context(), server, websock.DialOptions{}); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("at the server: %v", err)
	}
	// Neither does it outlast the right to connect.
	late := token()
	w.Exec(`UPDATE users SET status = 'suspended' WHERE username = 'ann'`)
	w.Exec(`SELECT pg_notify('users_revoked', '')`)
	testwait.Until(t, "the refusal", func() error {
		_, err := w.openTerminal(w.proxy, w.agent, late, w.page(), uuid.New())
		return testwait.Unless(fault.CodeOf(err) == fault.Forbidden, "error %v", err)
	})
}

// An open terminal ends with the right to it.
func TestTerminalEndsWithRights(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(*world) error{
		"signed out": func(w *world) error { return w.As("ann").Logout(w.t.Context()) },
		"no longer the owner's": func(w *world) error {
			w.Exec(`UPDATE workspaces SET owner_id = (SELECT id FROM users WHERE username = 'bob')`)
			w.Exec(`SELECT pg_notify('users_revoked', '')`)
			return nil
		},
		"proxy deleted": func(w *world) error { return w.As("olga").DeleteWorkspaceProxy(w.t.Context(), "eu") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, wildcard)
			w.User("bob")
			ws := w.terminal(uuid.New())
			w.types(ws, "echo a$((6*7))b\r", "a42b")
			if err := revoke(w); err != nil {
				t.Fatal(err)
			}
			end := w.closed(ws)
			if strings.HasPrefix(name, "proxy") { // the proxy stops, and the server takes it off the mesh
				if end.Status != websock.StatusGoingAway && end.Status != websock.StatusTryAgain {
					t.Errorf("the terminal ended with %v", end)
				}
			} else if end.Status != websock.StatusPolicy || end.Reason != "Your access to this terminal has ended." {
				t.Errorf("the terminal ended with %v", end)
			}
		})
	}
}

// A visa for a terminal opens no port, and one for a port no terminal: each opens what it names.
func TestTerminalVisas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wildcard)
	thief := w.joinAsProxy()
	visit := func(terminal region.Terminal, visit secret.Token, node uuid.UUID) (region.VisitResponse, error) {
		t.Helper()
		var resp region.VisitResponse
		terminal.Agent = w.agent
		err := w.asProxy(w.token).PostAsProxy(t.Context(), "visits", region.VisitRequest{Terminal: &terminal, Visit: visit, Node: node}, &resp)
		return resp, err
	}
	if _, err := visit(region.Terminal{}, "", thief.Node.ID()); fault.CodeOf(err) != fault.Forbidden {
		t.Fatalf("without a token: %v", err)
	}
	token, _ := w.terminalToken("ann", "", terminalURL(w.proxy, w.agent), w.agent)
	resp, err := visit(region.Terminal{Token: token}, "", thief.Node.ID())
	if err != nil || resp.Visa == "" {
		t.Fatalf("%+v, %v", resp, err)
	}
	for name, x := range map[string]struct {
		visit secret.Token
		node  uuid.UUID
	}{"another node": {resp.Visit, uuid.New()}, "a visa": {resp.Visa, thief.Node.ID()}, "tampered": {resp.Visit + "A", thief.Node.ID()}} {
		for _, ended := range []string{"", "closed"} {
			if _, err := visit(region.Terminal{Ended: ended}, x.visit, x.node); fault.CodeOf(err) != fault.Forbidden {
				t.Errorf("%s renews a terminal: %v", name, err)
			}
		}
	}
	v, err := visa.Open(coderdtest.Token(w.agent).Hash(), resp.Visa, time.Now())
	if err != nil || !v.Terminal || v.Port != 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	if err := thief.Client.Subscribe(t.Context(), w.agent); err != nil {
		t.Fatal(err)
	}
	if got := w.send(thief, meshport.Visit, w.agent, resp.Visa); strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("the visa of a terminal opens an app: %q", got)
	}
	for _, both := range []visa.Visa{{Agent: w.agent, Node: thief.Node.ID(), Port: 80, Terminal: true, Expires: v.Expires}, {Agent: w.agent, Node: thief.Node.ID(), Expires: v.Expires}} {
		signed, err := visa.Sign(coderdtest.Token(w.agent).Hash(), both)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := visa.Open(coderdtest.Token(w.agent).Hash(), signed, time.Now()); !errors.Is(err, visa.ErrInvalid) {
			t.Errorf("%s: %v", fmt.Sprintf("%+v", both), err)
		}
	}
}
