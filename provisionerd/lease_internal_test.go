package provisionerd

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func testLease(t *testing.T) *lease {
	t.Helper()
	offer := newOffer()
	j, err := createJournal(filepath.Join(t.TempDir(), "j.journal"), forJournal(offer))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.close() })
	return newLease(leaseKey{uuid.UUID(offer.GetJobId()), offer.GetEpoch()}, offer, j, slog.New(slog.DiscardHandler), func() {})
}

// all reads the lease's events from a number on, as the session does.
func all(t *testing.T, l *lease, from uint64) []*provisionerpb.Event {
	t.Helper()
	var out []*provisionerpb.Event
	for {
		e, err := l.next(from)
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			return out
		}
		if e.GetSeq() != from+1 {
			t.Fatalf("event %d follows %d", e.GetSeq(), from)
		}
		from = e.GetSeq()
		out = append(out, e)
	}
}

func TestLinesAreBatchedInOrder(t *testing.T) {
	t.Parallel()
	l := testLease(t)
	for i := range 3000 {
		l.Log(&provisionerpb.LogLine{Output: fmt.Sprint(i, strings.Repeat("x", 100))})
		if i == 1500 {
			l.Checkpoint([]byte("s"))
		}
	}
	l.finish(&provisionerpb.Result{})
	events, n := all(t, l, 0), 0
	for _, e := range events {
		for _, line := range e.GetLog().GetLines() {
			if !strings.HasPrefix(line.GetOutput(), fmt.Sprint(n, "x")) {
				t.Fatalf("line %d is %.20q", n, line.GetOutput())
			}
			n++
		}
		if e.GetCheckpoint() != nil && n != 1501 {
			t.Errorf("the checkpoint comes after %d lines", n)
		}
	}
	if n != 3000 || len(events) > 20 || events[len(events)-1].GetResult() == nil {
		t.Errorf("%d lines in %d events", n, len(events))
	}
}

// TestFullDisk checks that a failing disk leaves the journal as it was and the rest in memory, without a gap.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	l := testLease(t)
	l.Log(&provisionerpb.LogLine{Output: "on disk"})
	l.flush()
	l.disk.file.Close() // from here on every write fails
	l.Checkpoint([]byte("s1"))
	l.Log(&provisionerpb.LogLine{Output: "in memory"})
	l.finish(&provisionerpb.Result{Error: "full"})
	events := all(t, l, 1)
	if len(events) != 3 || string(events[0].GetCheckpoint().GetState()) != "s1" || events[2].GetResult().GetError() != "full" {
		t.Fatalf("events: %v", events)
	}
	if _, done := l.acknowledge(3); done {
		t.Error("done before the result was acknowledged")
	}
	if len(l.memory) != 1 {
		t.Errorf("%d events kept in memory, want the result alone", len(l.memory))
	}
	if _, done := l.acknowledge(4); !done {
		t.Error("not done")
	}
}

// TestRecoveredResultIsNumberedByTheServer: the result of a recovered job follows the server's events, which after a power cut may be more
// than those on disk.
func TestRecoveredResultIsNumberedByTheServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ disk, server, want uint64 }{{2, 0, 3}, {2, 2, 3}, {2, 5, 6}, {0, 0, 1}} {
		l := testLease(t)
		for i := range c.disk {
			l.Checkpoint(fmt.Append(nil, i))
		}
		at, err := l.disk.append(kindEvent, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: &provisionerpb.Result{Error: "killed"}}}, true)
		if err != nil {
			t.Fatal(err)
		}
		l.records, l.finished, l.started = append(l.records, at), true, true
		if start, done := l.acknowledge(c.server); start || done {
			t.Errorf("%+v: start %t, done %t", c, start, done)
		}
		var last *provisionerpb.Event
		for seq := c.server; ; {
			e, err := l.next(seq)
			if err != nil {
				t.Fatal(err)
			}
			if e == nil {
				break
			}
			last, seq = e, e.GetSeq()
		}
		if last.GetSeq() != c.want || last.GetResult() == nil {
			t.Errorf("%+v: the result is %v", c, last)
		}
		if _, done := l.acknowledge(c.want); !done {
			t.Errorf("%+v: not done", c)
		}
	}
}

func TestTextIsCleanedAndCut(t *testing.T) {
	t.Parallel()
	got := cleanLine(&provisionerpb.LogLine{Output: "a\x00\xff", Stage: strings.Repeat("s", 1000)})
	if got.Output != "a\uFFFD\uFFFD" || len(got.Stage) > 256 || got.At == nil {
		t.Errorf("cleaned: %q, %d bytes of stage, at %v", got.Output, len(got.Stage), got.At)
	}
	if long := cleanText(strings.Repeat("x", maxLine+1), maxLine); len(long) > maxLine || !strings.HasSuffix(long, fmt.Sprintf("[cut: %d bytes]", maxLine+1)) {
		t.Errorf("a long line has %d bytes and ends with %q", len(long), long[len(long)-30:])
	}
}
