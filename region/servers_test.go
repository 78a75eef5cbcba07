//go:build linux

package region_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/region"
)

// beside starts another server on the world's database, and returns the world as it is seen there.
func (w *world) beside() *world {
	w.t.Helper()
	other := *w
	other.Server = coderdtest.Start(w.t, func(o *coderd.Options) { o.DB, o.States = w.DB, w.States })
	testwait.Until(w.t, "the servers are linked", func() error {
		return cmp.Or(testwait.Len(w.Mesh.Linked(), 1), testwait.Len(other.Mesh.Linked(), 1))
	})
	return &other
}

// TestTerminalOfAnotherServer opens terminals at regions whose proxies ask either of two servers, with tokens that either has made, while the
// agent is connected to one of them. A token works once, whichever server is asked.
func TestTerminalOfAnotherServer(t *testing.T) {
	t.Parallel()
	here := newWorld(t, wildcard)
	there := here.beside()
	there.token, there.proxy, there.addr, there.ended = there.runProxy("us", "*.us.example.com")
	servers := []*world{here, there}
	for _, at := range servers { // where the proxy asks
		testwait.Until(t, "the regions at both servers", func() error {
			for _, w := range servers {
				list, err := w.As("ann").Regions(t.Context())
				if err != nil || len(list.Regions) != 3 || !list.Regions[1].Healthy || !list.Regions[2].Healthy {
					return fmt.Errorf("regions %+v (%w)", list, err)
				}
			}
			return nil
		})
		for _, by := range servers { // who makes the token
			token, status := by.terminalToken("ann", here.page(), terminalURL(at.proxy, here.agent), here.agent)
			if status != http.StatusOK {
				t.Fatalf("a token: %d", status)
			}
			ws, err := at.openTerminal(at.proxy, here.agent, token, here.page(), uuid.New())
			if err != nil {
				t.Fatal(err)
			}
			at.types(ws, "echo a$((6*7))b\r", "a42b")
			if _, err := at.openTerminal(at.proxy, here.agent, token, here.page(), uuid.New()); fault.CodeOf(err) != fault.Forbidden {
				t.Errorf("a used token at the region: %v", err)
			}
			for _, asked := range servers {
				if _, err := asked.visitTerminal(at.token, token, here.page()); fault.CodeOf(err) != fault.Forbidden {
					t.Errorf("a used token at a server: %v", err)
				}
			}
		}
	}
}

// TestTerminalTokenIsSpentOnce asks two servers about the same token at the same time.
func TestTerminalTokenIsSpentOnce(t *testing.T) {
	t.Parallel()
	here := newWorld(t, wildcard)
	there := here.beside()
	for range 10 {
		token, status := here.terminalToken("ann", "", terminalURL(here.proxy, here.agent), here.agent)
		if status != http.StatusOK {
			t.Fatalf("a token: %d", status)
		}
		var asking sync.WaitGroup
		answers := make([]region.VisitResponse, 4)
		errs := make([]error, len(answers))
		for i := range answers {
			asking.Go(func() { answers[i], errs[i] = []*world{here, there}[i%2].visitTerminal(here.token, token, "") })
		}
		asking.Wait()
		visas := 0
		for i, err := range errs {
			switch {
			case err == nil && answers[i].Visa != "":
				visas++
			case fault.CodeOf(err) != fault.Forbidden:
				t.Errorf("a used token: %v", err)
			}
		}
		if visas != 1 {
			t.Fatalf("a token opened %d terminals", visas)
		}
	}
}

// TestSpentTokenOutlivesSkew checks that a used token stays refused for as long as a server with a slow clock takes it for valid, if a server with a
// fast clock has made it.
func TestSpentTokenOutlivesSkew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wildcard)
	spend := func(token secret.Token) error {
		_, err := w.visitTerminal(w.token, token, "")
		return err
	}
	token := func() secret.Token {
		t.Helper()
		token, status := w.terminalToken("ann", "", terminalURL(w.proxy, w.agent), w.agent)
		if status != http.StatusOK {
			t.Fatalf("a token: %d", status)
		}
		return token
	}
	used := token()
	if err := spend(used); err != nil {
		t.Fatal(err)
	}
	w.Exec(`UPDATE app_codes SET expires_at = expires_at - interval '290 seconds'`) // as much later for the database, but not for the server
	if err := spend(token()); err != nil {                                          // removes what has expired
		t.Fatal(err)
	}
	if err := spend(used); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a used token, later: %v", err)
	}
}

// visitTerminal asks the world's server about a terminal, as a node of a proxy does.
func (w *world) visitTerminal(proxy, token secret.Token, origin string) (resp region.VisitResponse, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	req := region.VisitRequest{Terminal: &region.Terminal{Agent: w.agent, Token: token, Origin: origin}, Node: uuid.New()}
	return resp, w.asProxy(proxy).PostAsProxy(ctx, "visits", req, &resp)
}
