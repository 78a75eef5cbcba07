package jobs

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func message(bytes int) *provisionerpb.DaemonMessage {
	return &provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Event{Event: &provisionerpb.Event{
		Event: &provisionerpb.Event_Checkpoint{Checkpoint: &provisionerpb.Checkpoint{State: make([]byte, bytes)}},
	}}}
}

// TestInboxIsBounded checks that a daemon that sends faster than the server stores is made to wait, and that a message of any length fits
// into an empty inbox.
func TestInboxIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newInbox()
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := b.put(ctx, message(4*maxInbox)); err != nil {
			t.Fatal(err)
		}
		var stopped error
		sent := 0
		go func() {
			for stopped == nil {
				if stopped = b.put(ctx, message(maxInbox/4)); stopped == nil {
					sent++
				}
			}
		}()
		synctest.Wait()
		if sent != 0 {
			t.Errorf("%d messages joined one that fills the inbox", sent)
		}
		if n := len(b.take(10)); n != 1 {
			t.Errorf("took %d messages, want 1", n)
		}
		synctest.Wait()
		if sent != 3 {
			t.Errorf("the inbox holds %d messages of a quarter of its size and more, want 3", sent)
		}
		if n := len(b.take(2)); n != 2 {
			t.Errorf("took %d messages, want 2", n)
		}
		select {
		case <-b.arrived:
		default:
			t.Error("a message is left, and nothing says so")
		}
		synctest.Wait()
		reason := errors.New("the daemon is gone")
		cancel(reason)
		synctest.Wait()
		if !errors.Is(stopped, reason) {
			t.Errorf("the waiting sender got %v", stopped)
		}
	})
}

func TestGroups(t *testing.T) {
	t.Parallel()
	event := func(job string, epoch, seq uint64) *provisionerpb.Event {
		return &provisionerpb.Event{JobId: []byte(job), Epoch: epoch, Seq: seq}
	}
	piece := event("a", 1, 3)
	piece.Event = &provisionerpb.Event_StatePiece{StatePiece: &provisionerpb.StatePiece{}}
	all := []*provisionerpb.Event{event("a", 1, 1), event("b", 1, 1), event("a", 1, 2), piece, event("a", 2, 1), event("a", 1, 4), event("b", 1, 2), event("a", 1, 5)}
	want := [][]int{{0, 2}, {1, 6}, {3}, {4}, {5, 7}}
	var got [][]int
	for _, group := range groups(all) {
		var indexes []int
		for _, e := range group {
			indexes = append(indexes, slices.Index(all, e))
		}
		got = append(got, indexes)
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}
