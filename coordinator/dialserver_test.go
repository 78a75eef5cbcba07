package coordinator_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// replaceable is a worker whose server can be killed and replaced.
func replaceable(t *testing.T) (worker *participant, replace func() coordinator.Principal, first coordinator.Principal) {
	old := newServer(t, coordinator.Options{})
	d := &door{p: agent(1), server: old}
	join(t, protocol.KindServer, key(300), client.Options{Dial: old.Dialer(server(1))})
	worker = join(t, protocol.KindAgent, key(100), client.Options{Dial: d.dial})
	if _, err := worker.Server(t.Context()); err != nil {
		t.Fatal(err)
	}
	return worker, func() coordinator.Principal {
		next := newServer(t, coordinator.Options{})
		join(t, protocol.KindServer, key(301), client.Options{Dial: next.Dialer(server(2))})
		d.set(next, nil)
		d.cut()
		return server(2)
	}, server(1)
}

// TestDialServerLeavesAKilledServer: a dial to a server that no longer answers ends as soon as its successor is introduced, and dials that one without a
// pause.
func TestDialServerLeavesAKilledServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, replace, first := replaceable(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var dialled []uuid.UUID
		ended := make(chan error, 1)
		var conn net.Conn
		go func() {
			var err error
			conn, err = w.DialServer(ctx, func(ctx context.Context, server tailnet.NodeInfo) (net.Conn, error) {
				dialled = append(dialled, server.ID)
				if server.ID == first.ID {
					<-ctx.Done() // a killed server answers nothing
					return nil, ctx.Err()
				}
				end, _ := net.Pipe()
				return end, nil
			})
			ended <- err
		}()
		synctest.Wait()
		successor := replace()
		synctest.Wait()
		introduced := time.Now()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if want := []uuid.UUID{first.ID, successor.ID}; !slices.Equal(dialled, want) || time.Since(introduced) > time.Second {
			t.Errorf("dialled %v within %s, want %v at once", dialled, time.Since(introduced), want)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestConnectionEndsWithItsServer: the successor's introduction also closes an open connection, but not one to a server that stays.
func TestConnectionEndsWithItsServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, replace, _ := replaceable(t)
		dial := func(context.Context, tailnet.NodeInfo) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go io.Copy(theirs, theirs)
			return ours, nil
		}
		conn, err := w.DialServer(t.Context(), dial)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		time.Sleep(time.Hour) // of the bubble
		if _, err := conn.Write([]byte{1}); err != nil {
			t.Fatalf("a connection to a server that stays: %v", err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		replace()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Fatal("the connection to the killed server is still open")
		}
	})
}

func TestReconnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, replace, _ := replaceable(t)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Reconnected(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("without a new welcome: %v", err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Reconnected(t.Context()) }()
		synctest.Wait()
		replace()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}
