package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// terminalPage is a page that shows one terminal, and opens it again when its connection ends.
type terminalPage struct {
	f               *fleet
	region          string // where it is opened; empty: through the balancer
	agent, terminal uuid.UUID
	ws              *websock.Conn
}

// terminalPage opens a terminal in a workspace and leaves a mark in its shell.
func (f *fleet) terminalPage(workspace string) *terminalPage {
	f.t.Helper()
	p := &terminalPage{f: f, agent: uuid.MustParse(f.workspace(workspace).agentID()), terminal: uuid.New()}
	p.open()
	if err := p.exchange(`kept=this-very-shell; echo ma''rked`, "marked"); err != nil {
		f.t.Fatal(err)
	}
	return p
}

// regionTerminalPage opens a terminal in a workspace at a region.
func (f *fleet) regionTerminalPage(at, workspace string) *terminalPage {
	f.t.Helper()
	p := &terminalPage{f: f, region: at, agent: uuid.MustParse(f.workspace(workspace).agentID()), terminal: uuid.New()}
	p.open()
	if err := p.exchange(`kept=this-very-shell; echo ma''rked`, "marked"); err != nil {
		f.t.Fatal(err)
	}
	return p
}

// open connects to the terminal.
func (p *terminalPage) open() {
	p.f.t.Helper()
	if p.region == "" {
		p.ws = p.f.open(p.agent, p.terminal).ws
		return
	}
	opened, _ := p.f.openAtRegion(p.region, p.agent, p.terminal)
	p.ws = opened.ws
}

// exchange types a command and waits for what it prints.
func (p *terminalPage) exchange(command, want string) error {
	ctx, cancel := context.WithTimeout(p.f.t.Context(), settle)
	defer cancel()
	if err := p.ws.WriteBinary(ctx, fmt.Appendf(nil, `{"data":%q}`, command+"\r")); err != nil {
		return err
	}
	return p.shows(ctx, want)
}

// shows waits until the terminal shows a text.
func (p *terminalPage) shows(ctx context.Context, want string) error {
	var shown []byte
	for !bytes.Contains(shown, []byte(want)) {
		data, err := p.ws.ReadAny(ctx)
		if err != nil {
			return fmt.Errorf("wait for %q in %q: %w", want, shown, err)
		}
		shown = append(shown, data...)
	}
	return nil
}

// lives fails the test unless the page shows the same shell as before. It opens the terminal again if its connection
// has ended, and then wants the screen as it was.
func (p *terminalPage) lives(what string) {
	p.f.t.Helper()
	for again := false; ; again = true {
		err := p.exchange(fmt.Sprintf("echo %q-$kept", what), what+"-this-very-shell")
		if err == nil {
			return
		}
		if p.ws.CloseNow(); again && errors.Is(err, context.DeadlineExceeded) {
			p.f.t.Fatalf("%s: the terminal: %v", what, err)
		}
		begin := time.Now()
		p.open()
		ctx, cancel := context.WithTimeout(p.f.t.Context(), settle)
		err = p.shows(ctx, "marked")
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			p.f.t.Fatalf("%s: the terminal's screen: %v", what, err)
		} else if err != nil {
			continue // this server has ended, too
		}
		p.f.t.Logf("%s: the terminal showed its screen again %s after it connected", what, time.Since(begin))
	}
}

// stays fails the test unless the terminal's connection has lasted.
func (p *terminalPage) stays(what string) {
	p.f.t.Helper()
	if err := p.exchange(fmt.Sprintf("echo %q-$kept", "stays-"+what), "stays-"+what+"-this-very-shell"); err != nil {
		p.f.t.Errorf("%s: the terminal: %v", what, err)
	}
}

// appPage is a page of an app in a workspace. It keeps a websocket open, opens it again when it ends, and requests a
// file of the app all the time.
type appPage struct {
	t       *testing.T
	what    string // for people
	page    *http.Request
	client  *http.Client // has the cookies of the page
	program http.Header  // for the websocket
	stop    func() error // ends the page, and returns that a websocket hung, if one did

	mu       sync.Mutex
	rounds   int           // echoes and files that have come
	reopened int           // how often
	refused  []error       // requests for the file that failed
	last     time.Time     // when the last round ended
	gap      time.Duration // the longest time between two rounds since lives was called
}

// echoApp is an app that echoes what its websockets send. Workspaces are processes on this machine, so it listens in
// them, too.
func (f *fleet) echoApp() (port string) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprint(w, "app at "+r.URL.Path)
			return
		}
		ws, err := websock.Accept(w, r, websock.AcceptOptions{PingInterval: -1})
		if err != nil {
			return
		}
		defer ws.CloseNow()
		for {
			data, err := ws.Read(r.Context())
			if err != nil || ws.Write(r.Context(), data) != nil {
				return
			}
		}
	}))
	f.t.Cleanup(app.Close)
	_, port, _ = strings.Cut(app.Listener.Addr().String(), ":")
	return port
}

// appPage opens a port of a workspace through the balancer, at the host of the port.
func (f *fleet) appPage(workspace, port string) *appPage {
	f.t.Helper()
	front := f.front.Addr().String()
	_, frontPort, _ := strings.Cut(front, ":")
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, front)
	}}
	base := fmt.Sprintf("http://%s--main--%s--ada.localhost:%s/", port, workspace, frontPort)
	token := http.Header{sdk.SessionHeader: {f.token}}
	return f.startAppPage("the app through the balancer", base, &http.Client{Transport: transport}, token, token)
}

// regionAppPage opens a port of a workspace at a region proxy, by path.
func (f *fleet) regionAppPage(at, workspace, port string) *appPage {
	f.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	server, err := url.Parse(f.url())
	if err != nil {
		f.t.Fatal(err)
	}
	jar.SetCookies(server, []*http.Cookie{{Name: "coder_session_token", Value: f.token, Path: "/"}})
	client := &http.Client{Transport: &http.Transport{}, Jar: jar}
	base := at + "/@ada/" + workspace + "/apps/" + port + "/"
	return f.startAppPage("the app at the region", base, client, http.Header{"Accept": {"text/html"}}, nil)
}

// startAppPage signs the visitor in, which may lead to another address, and begins to use the page there.
func (f *fleet) startAppPage(what, base string, client *http.Client, browser, program http.Header) *appPage {
	f.t.Helper()
	f.t.Cleanup(client.CloseIdleConnections)
	p := &appPage{t: f.t, what: what, client: client, program: program}
	var err error
	if p.page, err = http.NewRequestWithContext(f.t.Context(), http.MethodGet, base, nil); err != nil {
		f.t.Fatal(err)
	}
	p.page.Header = browser
	testwait.Until(f.t, what, func() error {
		at, err := p.file(f.t.Context())
		if err == nil {
			p.page.URL = at
		}
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	p.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	f.t.Cleanup(func() { _ = p.stop() }) // end reports it
	p.last = time.Now()
	go func() { done <- p.use(ctx) }()
	p.lives("at the beginning")
	return p
}

// file requests the page, and returns where it is.
func (p *appPage) file(ctx context.Context) (*url.URL, error) {
	resp, err := p.client.Do(p.page.Clone(ctx))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ok := err == nil && resp.StatusCode == http.StatusOK && string(body) == "app at /"
	return resp.Request.URL, testwait.Unless(ok, "%s %q, %v", resp.Status, body, err)
}

// use keeps the websocket open until ctx ends. It returns an error if one neither echoes nor ends.
func (p *appPage) use(ctx context.Context) error {
	for tick := time.Tick(100 * time.Millisecond); ; {
		opts := websock.DialOptions{Header: p.program, HTTPClient: p.client, PingInterval: -1}
		ws, err := websock.Dial(ctx, p.page.URL.JoinPath("ws"), opts)
		if err == nil {
			err = p.echo(ctx, ws, tick)
			ws.CloseNow()
			p.mu.Lock()
			p.reopened++
			p.mu.Unlock()
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the page has ended
		case errors.Is(err, context.DeadlineExceeded):
			return err
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
}

// echo sends texts over a websocket and wants them back, and requests the file, until one of them fails.
func (p *appPage) echo(ctx context.Context, ws *websock.Conn, tick <-chan time.Time) error {
	for n := 0; ; n++ {
		limited, cancel := context.WithTimeout(ctx, settle)
		text := fmt.Sprint("echo ", n)
		err := ws.Write(limited, []byte(text))
		var got []byte
		if err == nil {
			got, err = ws.Read(limited)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("%s of %s: %w", text, p.what, err)
		} else if string(got) != text {
			return fmt.Errorf("%s of %s is %q", text, p.what, got)
		}
		_, err = p.file(ctx)
		p.mu.Lock()
		if err != nil && ctx.Err() == nil {
			p.refused = append(p.refused, err)
		}
		now := time.Now()
		p.gap, p.last = max(p.gap, now.Sub(p.last)), now
		p.rounds++
		p.mu.Unlock()
		select {
		case <-tick:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lives waits until the websocket has echoed more, and returns for how long it did not since the last call.
func (p *appPage) lives(what string) time.Duration {
	p.t.Helper()
	p.mu.Lock()
	before := p.rounds
	p.mu.Unlock()
	testwait.Until(p.t, what+": "+p.what+" goes on", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return testwait.Unless(p.rounds > before+2, "%d rounds, %d before; refused: %v", p.rounds, before, p.refused)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	gap := p.gap
	p.gap = 0
	return gap
}

// end ends the page. It fails the test if a websocket hung, and unless websockets ended with their servers or, if the
// page is at a region, did not.
func (p *appPage) end(regional bool) {
	p.t.Helper()
	if err := p.stop(); err != nil {
		p.t.Error(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := p.reopened - 1 // the last one ended with the page
	p.t.Logf("%s: %d rounds, %d websockets ended, requests failed: %v", p.what, p.rounds, lost, p.refused)
	if regional != (lost == 0) {
		p.t.Errorf("%s: %d websockets ended", p.what, lost)
	}
}

// eventsPage is a page that follows the stream of events, and connects again when it ends. It reads everything at the event "ready", with which each
// connection begins, and at "reset", after which the server cannot tell what it missed.
type eventsPage struct {
	mu     sync.Mutex
	whole  int // how often the page reads everything: it connected, or the server lost events
	events []string
}

// eventsPage begins to follow the stream until the test ends.
func (f *fleet) eventsPage() *eventsPage {
	p := &eventsPage{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	f.t.Cleanup(func() {
		cancel()
		<-done
	})
	target, token := f.url()+"/api/v2/events", f.token
	go func() {
		defer close(done)
		for tick := time.Tick(100 * time.Millisecond); ; {
			p.follow(ctx, target, token)
			select {
			case <-tick:
			case <-ctx.Done():
				return
			}
		}
	}()
	return p
}

// follow reads one connection until it ends, for whatever reason.
func (p *eventsPage) follow(ctx context.Context, target, token string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		panic(err) // the URL is the test's
	}
	req.Header.Set(sdk.SessionHeader, token)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		p.mu.Lock()
		if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok && (event == string(sdk.EventReady) || event == string(sdk.EventReset)) {
			p.whole++
		} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			p.events = append(p.events, data)
		}
		p.mu.Unlock()
	}
}

// learns waits until the page hears of an object, or reads everything, since begin.
func (p *eventsPage) learns(t *testing.T, what, id string, begin eventsMark) {
	t.Helper()
	testwait.Until(t, what+": the page learns of "+id, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		learned := strings.Join(p.events[begin.events:], "\n")
		return testwait.Unless(p.whole > begin.whole || strings.Contains(learned, id), "it has learned %q", learned)
	})
}

// eventsMark is a point in what a page has learned.
type eventsMark struct{ whole, events int }

func (p *eventsPage) mark() eventsMark {
	p.mu.Lock()
	defer p.mu.Unlock()
	return eventsMark{p.whole, len(p.events)}
}

// heard fails the test unless the page connected, and heard something.
func (p *eventsPage) heard(t *testing.T) {
	t.Helper()
	m := p.mark()
	t.Logf("the stream of events: everything was read %d times, %d events", m.whole, m.events)
	if m.whole == 0 || m.events == 0 {
		t.Error("the page heard nothing")
	}
}
