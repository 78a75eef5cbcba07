//go:build unix

package units_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/units"
	"github.com/codermesh/codermesh/v2/internal/connset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers on a socket until the test ends or calls stop.
func serve(t *testing.T, dir string, build uint64) (path string, stop func()) {
	t.Helper()
	path = filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	graph := units.New(filepath.Join(dir, "units.json"), build)
	ctx, cancel := context.WithCancel(context.Background())
	conns := connset.New(connset.Options{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = conns.Serve(l, func(conn net.Conn) { _ = units.Serve(ctx, conn, graph) }) // a client may give up
	})
	stop = func() {
		cancel()
		conns.Close()
		wg.Wait()
	}
	t.Cleanup(stop)
	return path, stop
}

func TestUnits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, stop := serve(t, dir, 1)
	ask := func(r units.Request) units.Unit {
		t.Helper()
		u, err := units.Ask(t.Context(), path, r)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		return u
	}
	refused := func(r units.Request, want string) {
		t.Helper()
		if _, err := units.Ask(t.Context(), path, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
	ask(units.Request{Do: "ping"})
	ask(units.Request{Do: "want", Unit: "ide", Wants: []string{"clone", "tools"}})
	ask(units.Request{Do: "want", Unit: "clone", Wants: []string{"key"}})
	want := units.Unit{Name: "ide", Status: units.Pending, Wants: []string{"clone", "tools"}, Waits: []string{"clone", "tools"}, Known: true}
	if diff := cmp.Diff(want, ask(units.Request{Do: "status", Unit: "ide"})); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	var names []string
	for _, u := range ask(units.Request{Do: "list"}).Units {
		names = append(names, u.Name+" "+strings.Join(u.Waits, "+"))
	}
	if diff := cmp.Diff([]string{"clone key", "ide clone+tools", "key ", "tools "}, names); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	refused(units.Request{Do: "want", Unit: "key", Wants: []string{"ide"}}, "which waits for it")
	refused(units.Request{Do: "want", Unit: "key", Wants: []string{"key"}}, "which waits for it")
	refused(units.Request{Do: "start", Unit: "ide", WaitMS: 1}, "still waits for clone, tools")
	refused(units.Request{Do: "start", Unit: ""}, "not a unit name")
	refused(units.Request{Do: "dance"}, "cannot")

	started := make(chan error, 1)
	go func() {
		_, err := units.Ask(t.Context(), path, units.Request{Do: "start", Unit: "ide"})
		started <- err
	}()
	ask(units.Request{Do: "start", Unit: "key"})
	refused(units.Request{Do: "start", Unit: "key"}, "started already")
	refused(units.Request{Do: "want", Unit: "key", Wants: []string{"x"}}, "has already started")
	for _, name := range []string{"key", "clone"} {
		ask(units.Request{Do: "complete", Unit: name})
	}
	select {
	case err := <-started:
		t.Fatalf("started before tools are complete: %v", err)
	default:
	}
	// The agent restarts: waiting clients ask again, and no unit is forgotten.
	stop()
	if err := <-started; !errors.Is(err, units.ErrAway) {
		t.Errorf("while the agent is away: %v", err)
	}
	path, stop = serve(t, dir, 1)
	go func() {
		_, err := units.Ask(t.Context(), path, units.Request{Do: "start", Unit: "ide"})
		started <- err
	}()
	ask(units.Request{Do: "complete", Unit: "tools"})
	if err := <-started; err != nil {
		t.Errorf("start: %v", err)
	}
	if got := ask(units.Request{Do: "status", Unit: "ide"}); got.Status != units.Started {
		t.Errorf("status: %+v", got)
	}
	stop()
	path, _ = serve(t, dir, 2) // another build
	if got := ask(units.Request{Do: "status", Unit: "ide"}); got.Known {
		t.Errorf("status in the next build: %+v", got)
	}
}

// TestListIsBounded: units that want more than fits into an answer are refused, and the agent answers on.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	graph := units.New("", 1)
	var wanted []string
	for i := range 200 {
		wanted = append(wanted, strings.Repeat("x", 250)+strconv.Itoa(i))
	}
	for i := range 10 {
		if err := graph.Want("unit"+strconv.Itoa(i), wanted...); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := graph.All(); err == nil || len(all) > 0 {
		t.Errorf("%d units, %v", len(all), err)
	}
	if got := graph.Get("unit3"); len(got.Wants) != 200 {
		t.Errorf("status: %+v", got)
	}
}

func TestGivingUp(t *testing.T) {
	t.Parallel()
	path, _ := serve(t, t.TempDir(), 1)
	if _, err := units.Ask(t.Context(), path, units.Request{Do: "want", Unit: "a", Wants: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := units.Ask(ctx, path, units.Request{Do: "start", Unit: "a"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start: %v", err)
	}
	if _, err := units.Ask(t.Context(), path+"x", units.Request{Do: "ping"}); !errors.Is(err, units.ErrAway) {
		t.Errorf("no agent: %v", err)
	}
	for _, nonsense := range []string{"", "{\n", "[]\n", strings.Repeat("x", 100_000) + "\n"} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(nonsense)) // the server may have closed it
		conn.Close()
	}
	if _, err := units.Ask(t.Context(), path, units.Request{Do: "ping"}); err != nil {
		t.Errorf("after nonsense: %v", err)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(`{"do":"want","unit":"a","wants":["b"]}`+"\n", "b")
	f.Add("{}\n", "a")
	f.Fuzz(func(t *testing.T, line, name string) {
		r, err := units.ReadRequest(strings.NewReader(line))
		if err != nil {
			return
		}
		g := units.New("", 1)
		if err := g.Want(r.Unit, r.Wants...); err == nil {
			u := g.Get(r.Unit)
			if !u.Known || u.Status != units.Pending || len(u.Waits) != len(u.Wants) {
				t.Errorf("unit %+v", u)
			}
			for _, w := range r.Wants {
				if g.Want(w, r.Unit) == nil {
					t.Errorf("%q wants %q and the other way round", w, r.Unit)
				}
			}
		}
		_ = g.Complete(name) // a name may be invalid
	})
}
