package provisionerd

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/disk/disktest"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestFullJournalIsExplained: a job whose journal's disk is full goes on, and its log says so once.
func TestFullJournalIsExplained(t *testing.T) {
	t.Parallel()
	dir := disktest.Small(t, "size=1m")
	offer := newOffer()
	file, err := createJournal(filepath.Join(dir, "j.journal"), forJournal(offer))
	if err != nil {
		t.Fatal(err)
	}
	defer file.close()
	l := newLease(leaseKey{uuid.UUID(offer.GetJobId()), offer.GetEpoch()}, offer, file, slog.New(slog.DiscardHandler), func() {})
	disktest.Fill(t, filepath.Join(dir, "ballast"))
	for range 3 {
		l.Log(&provisionerpb.LogLine{Output: strings.Repeat("x", 8192)})
		l.flush()
	}
	l.finish(&provisionerpb.Result{})
	told := 0
	for _, event := range all(t, l, 0) {
		for _, line := range event.GetLog().GetLines() {
			if strings.HasPrefix(line.GetOutput(), "The provisioner's disk is full: 0 of 1 MB free in "+dir+".") && line.GetLevel() == provisionerpb.LogLevel_LOG_LEVEL_WARN {
				told++
			}
		}
	}
	if told != 1 {
		t.Errorf("the log says %d times that the disk is full", told)
	}
	// The next job's journal cannot even be made.
	if _, err := createJournal(filepath.Join(dir, "k.journal"), forJournal(offer)); err != nil {
		l = newLease(leaseKey{uuid.UUID(offer.GetJobId()), offer.GetEpoch()}, offer, nil, slog.New(slog.DiscardHandler), func() {})
		l.leaveDisk(err)
		l.flush()
		if events := all(t, l, 0); len(events) != 1 || !strings.HasPrefix(events[0].GetLog().GetLines()[0].GetOutput(), "The provisioner's disk is full") {
			t.Errorf("events: %v", events)
		}
	} else {
		t.Error("a journal was made on a full disk")
	}
}
