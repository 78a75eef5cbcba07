package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
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
	agent, terminal uuid.UUID
	ws              *websock.Conn
}

// terminalPage opens a terminal in a workspace and leaves a mark in its shell.
func (f *fleet) terminalPage(workspace string) *terminalPage {
	f.t.Helper()
	p := &terminalPage{f: f, agent: uuid.MustParse(f.workspace(workspace).agentID()), terminal: uuid.New()}
	p.ws = f.open(p.agent, p.terminal).ws
	if err := p.exchange(`kept=this-very-shell; echo ma''rked`, "marked"); err != nil {
		f.t.Fatal(err)
	}
	return p
}

// regionTerminalPage opens a terminal in a workspace at a new region.
func (f *fleet) regionTerminalPage(workspace string) *terminalPage {
	f.t.Helper()
	at, _ := f.runRegion("eu")
	p := &terminalPage{f: f, agent: uuid.MustParse(f.workspace(workspace).agentID()), terminal: uuid.New()}
	opened, _ := f.openAtRegion(at, p.agent, p.terminal)
	p.ws = opened.ws
	if err := p.exchange(`kept=this-very-shell; echo ma''rked`, "marked"); err != nil {
		f.t.Fatal(err)
	}
	return p
}

// exchange types a command and waits for what it prints.
func (p *terminalPage) exchange(command, want string) error {
	ctx, cancel := context.WithTimeout(p.f.t.Context(), settle)
	defer cancel()
	if err := p.ws.WriteBinary(ctx, fmt.Appendf(nil, `{"data":%q}`, command+"\r")); err != nil {
		return err
	}
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

// lives fails the test unless the page shows the same shell as before. It opens the terminal again if its connection has ended.
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
		p.ws = p.f.open(p.agent, p.terminal).ws
	}
}

// stays fails the test unless the terminal's connection has lasted.
func (p *terminalPage) stays(what string) {
	p.f.t.Helper()
	if err := p.exchange(fmt.Sprintf("echo %q-$kept", "stays-"+what), "stays-"+what+"-this-very-shell"); err != nil {
		p.f.t.Errorf("%s: the terminal: %v", what, err)
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
