package provisionerd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func newOffer() *provisionerpb.Offer {
	id := uuid.New()
	return &provisionerpb.Offer{
		JobId: id[:], Epoch: 3,
		Job: &provisionerpb.Offer_WorkspaceBuild{WorkspaceBuild: &provisionerpb.WorkspaceBuild{
			Transition: provisionerpb.Transition_TRANSITION_STOP, State: []byte("before"),
			Variables: []*provisionerpb.VariableValue{{Name: "password", Value: "secret-value", Sensitive: true}},
			Metadata:  &provisionerpb.Metadata{OwnerSessionToken: "secret-value"},
		}},
	}
}

func logEvent(seq uint64, text string) *provisionerpb.Event {
	return &provisionerpb.Event{Seq: seq, Event: &provisionerpb.Event_Log{Log: &provisionerpb.LogBatch{Lines: []*provisionerpb.LogLine{{Output: text}}}}}
}

func checkpointEvent(seq uint64, state string) *provisionerpb.Event {
	return &provisionerpb.Event{Seq: seq, Event: &provisionerpb.Event_Checkpoint{Checkpoint: &provisionerpb.Checkpoint{State: []byte(state)}}}
}

func resultEvent(seq uint64) *provisionerpb.Event {
	return &provisionerpb.Event{Seq: seq, Event: &provisionerpb.Event_Result{Result: &provisionerpb.Result{Error: "e"}}}
}

// write makes a journal of events and returns its path.
func write(t testing.TB, events ...*provisionerpb.Event) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "j.journal")
	j, err := createJournal(path, forJournal(newOffer()))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if _, err := j.append(kindEvent, e, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestJournalComesBack(t *testing.T) {
	t.Parallel()
	path := write(t, logEvent(1, "a"), checkpointEvent(2, "s1"), checkpointEvent(3, "s2"), resultEvent(4))
	j, c, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	if !c.finished || c.tail > 0 || c.last() != 4 || string(c.state) != "s2" || c.offer.GetEpoch() != 3 {
		t.Errorf("finished %t, tail %d, last %d, state %q, epoch %d", c.finished, c.tail, c.last(), c.state, c.offer.GetEpoch())
	}
	for seq := range uint64(4) {
		at, ok := after(c.records, seq)
		if !ok || at.seq != seq+1 {
			t.Fatalf("after %d comes %+v %t", seq, at, ok)
		}
		if e, err := j.event(at); err != nil || e.GetSeq() != seq+1 {
			t.Errorf("event %d: %v %v", seq+1, e, err)
		}
	}
	if _, ok := after(c.records, 4); ok {
		t.Error("something comes after the last event")
	}
}

func TestJournalHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(write(t))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, []byte("secret-value")) || bytes.Contains(data, []byte("before")) {
		t.Error("the journal holds values of the offer")
	}
}

// TestJournalTornAnywhere checks that a process killed at any byte leaves a journal whose whole records are all found, and that can be
// appended to.
func TestJournalTornAnywhere(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(write(t, logEvent(1, "a"), checkpointEvent(2, "s1"), logEvent(3, "b")))
	if err != nil {
		t.Fatal(err)
	}
	full, err := readJournal(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for n := range len(whole) {
		path := filepath.Join(dir, fmt.Sprint(n))
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want := 0
		for _, r := range full.records {
			if r.offset+int64(r.length) <= int64(n) {
				want++
			}
		}
		j, c, err := openJournal(path)
		if err != nil {
			if !errors.Is(err, errNoJournal) || want > 0 {
				t.Fatalf("cut at %d: %v", n, err)
			}
			continue
		}
		if len(c.records) != want || c.finished {
			t.Errorf("cut at %d: %d events, want %d", n, len(c.records), want)
		}
		if _, err := j.append(kindEvent, resultEvent(c.last()+1), true); err != nil {
			t.Fatalf("cut at %d: append: %v", n, err)
		}
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
		j, c, err = openJournal(path)
		if err != nil || !c.finished || len(c.records) != want+1 {
			t.Errorf("cut at %d and written on: %+v %v", n, c, err)
		}
		j.close()
	}
}

func TestJournalStopsAtGapsAndFlips(t *testing.T) {
	t.Parallel()
	j, c, err := openJournal(write(t, logEvent(1, "a"), logEvent(3, "gap"), logEvent(4, "b")))
	if err != nil || len(c.records) != 1 {
		t.Fatalf("with a gap: %+v %v", c, err)
	}
	j.close()
	whole, err := os.ReadFile(write(t, logEvent(1, "a"), logEvent(2, "b")))
	if err != nil {
		t.Fatal(err)
	}
	whole[len(whole)-1] ^= 1
	c, err = readJournal(bytes.NewReader(whole), int64(len(whole)))
	if err != nil || len(c.records) != 1 {
		t.Fatalf("with a flipped bit: %+v %v", c, err)
	}
}

func FuzzJournal(f *testing.F) {
	for _, events := range [][]*provisionerpb.Event{nil, {logEvent(1, "a"), resultEvent(2)}, {checkpointEvent(1, "s"), resultEvent(0)}} {
		data, err := os.ReadFile(write(f, events...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)-3])
	}
	f.Add([]byte(journalMagic + "\xff\xff\xff\xff\x00\x00\x00\x00O"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := readJournal(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		if c.size > int64(len(data)) || len(c.offer.GetJobId()) != 16 {
			t.Fatalf("size %d of %d, job %x", c.size, len(data), c.offer.GetJobId())
		}
		j := &journal{size: c.size}
		for i, r := range c.records {
			if r.seq != uint64(i+1) && (r.seq != 0 || i < len(c.records)-c.tail) {
				t.Fatalf("event %d has number %d", i, r.seq)
			}
			if r.offset+int64(r.length) > j.size {
				t.Fatalf("event %d ends behind the journal", i)
			}
		}
		// The result is a fixed point: the whole part alone reads the same.
		again, err := readJournal(bytes.NewReader(data[:c.size]), c.size)
		if err != nil || len(again.records) != len(c.records) || again.size != c.size {
			t.Fatalf("read again: %+v %v", again, err)
		}
	})
}
