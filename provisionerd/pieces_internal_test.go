package provisionerd

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func pieceEvent(seq, offset uint64, data string) *provisionerpb.Event {
	piece := &provisionerpb.StatePiece{Offset: offset, Data: []byte(data)}
	return &provisionerpb.Event{JobId: newOffer().GetJobId(), Epoch: newOffer().GetEpoch(), Seq: seq, Event: &provisionerpb.Event_StatePiece{StatePiece: piece}}
}

// TestJournalWithPieces checks that the journal of a job that was killed while it wrote pieces has the last whole state and every change.
func TestJournalWithPieces(t *testing.T) {
	t.Parallel()
	l := testLease(t)
	l.pieceBytes = 4
	begun := &provisionerpb.Change{Address: "t.a", Creates: true}
	l.Change(begun)
	l.Checkpoint([]byte("one two three"))
	l.Change(&provisionerpb.Change{Address: "t.\xff", End: provisionerpb.Change_END_ERRORED})
	for _, e := range []*provisionerpb.Event{pieceEvent(l.last+1, 0, "half")} { // of a checkpoint that never arrived
		if _, err := l.disk.append(kindEvent, e, true); err != nil {
			t.Fatal(err)
		}
	}
	path := l.disk.file.Name()
	j, c, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := j.checkpoint(c); err != nil || string(state) != "one two three" {
		t.Errorf("state %q, %v", state, err)
	}
	want := []*provisionerpb.Change{begun, {Address: "t.\uFFFD", End: provisionerpb.Change_END_ERRORED}}
	if diff := cmp.Diff(want, c.changes, protocmp.Transform()); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	// Its recovery was killed, too: the pieces without a number are dropped, and the next recovery writes them again.
	last := c.last()
	back := newLease(l.key, c.offer, j, l.log, func() {})
	back.pieceBytes, back.records, back.last = 4, c.records, last
	if _, err := j.append(kindEvent, pieceEvent(0, 0, "torn"), true); err != nil {
		t.Fatal(err)
	}
	again, c, err := openJournal(path)
	if err != nil || c.tail != 0 || c.last() != last || c.finished {
		t.Fatalf("after a torn recovery: tail %d, last %d of %d, %v", c.tail, c.last(), last, err)
	}
	back.disk, back.records = again, c.records
	result := &provisionerpb.Result{Error: "killed", Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{State: []byte("one two three")}}}
	if err := back.appendTail(result); err != nil {
		t.Fatal(err)
	}
	_, c, err = openJournal(path)
	if err != nil || !c.finished || c.tail != 5 {
		t.Fatalf("after the recovery: %v, finished %t, %d records without a number", err, c.finished, c.tail)
	}
	back.records, back.finished, back.started = c.records, true, true
	back.acknowledge(last)
	var state []byte
	events := all(t, back, last)
	for _, e := range events {
		state = append(state, e.GetStatePiece().GetData()...)
	}
	if len(events) != 5 || string(state) != "one two three" || checkState(state, events[4].GetResult().GetWorkspaceBuild().GetStateInPieces()) != nil {
		t.Errorf("delivered %v", events)
	}
}

// TestSendable checks that sendable turns a result that protobuf rejects into a valid one, which always names the lost resources.
func TestSendable(t *testing.T) {
	t.Parallel()
	bad := func() *provisionerpb.Result {
		return &provisionerpb.Result{Error: "a\xff", Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
			State: []byte("\xff"), Unknown: []string{"t.\xfe"}, Resources: []*provisionerpb.Resource{{Name: "\xff", Agents: []*provisionerpb.Agent{{
				Id: []byte("\xff"), Env: map[string]string{"k\xff": "v\xff"}, DisplayApps: []string{"\xff"},
			}}}},
		}}}
	}
	if _, err := proto.Marshal(bad()); err == nil {
		t.Fatal("protobuf takes text that is not UTF-8")
	}
	got := sendable(bad())
	want := &provisionerpb.Result{Error: "a\uFFFD", Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
		State: []byte("\xff"), Unknown: []string{"t.\uFFFD"}, Resources: []*provisionerpb.Resource{{Name: "\uFFFD", Agents: []*provisionerpb.Agent{{
			Id: []byte("\xff"), Env: map[string]string{"k\uFFFD": "v\uFFFD"}, DisplayApps: []string{"\uFFFD"},
		}}}},
	}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	large := bad()
	large.GetWorkspaceBuild().Resources[0].Icon = strings.Repeat("x", maxMessage)
	got = sendable(large)
	if size := proto.Size(got); size > 1<<10 || len(got.GetWorkspaceBuild().GetUnknown()) != 1 || !strings.HasPrefix(got.GetError(), "a\uFFFD The job's result cannot be sent") {
		t.Errorf("a large result became %d bytes: %v", size, got)
	}
}

// FuzzJournalState: whatever is on the disk, the state is the announced one, or none.
func FuzzJournalState(f *testing.F) {
	for _, events := range [][]*provisionerpb.Event{
		{pieceEvent(1, 0, "ab"), pieceEvent(2, 2, "c"), {JobId: newOffer().GetJobId(), Epoch: 3, Seq: 3, Event: &provisionerpb.Event_Checkpoint{Checkpoint: &provisionerpb.Checkpoint{StateInPieces: refOf([]byte("abc"))}}}},
		{pieceEvent(1, 0, "ab"), pieceEvent(0, 0, "x")},
	} {
		data, err := os.ReadFile(write(f, events...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := readJournal(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		c.drop()
		name := t.TempDir() + "/j"
		if err := os.WriteFile(name, data[:c.size], 0o600); err != nil {
			t.Fatal(err)
		}
		j, again, err := openJournal(name)
		if err != nil {
			t.Fatal(err)
		}
		defer j.close()
		if again.tail != c.tail || len(again.records) != len(c.records) {
			t.Fatalf("read again: %d records, %d without a number; before %d, %d", len(again.records), again.tail, len(c.records), c.tail)
		}
		state, err := j.checkpoint(again)
		if err == nil && again.ref != nil && checkState(state, again.ref) != nil {
			t.Fatal("a state that is not the one announced")
		}
	})
}
