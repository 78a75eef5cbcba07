package provisionerd

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const (
	batchDelay = 50 * time.Millisecond // how long a log line waits for more
	batchBytes = 64 << 10              // of log lines that do not wait
	maxLine    = 32 << 10              // bytes of one line
	lineCost   = 64                    // bytes that a line costs in addition to its text
	// maxLog bounds a job's log, in bytes. It is a little above what the server keeps, so that the server notices.
	maxLog = 16<<20 + 256<<10
	// maxErrors is how many more bytes error lines may take: the end of a log shows why its job failed.
	maxErrors = 256 << 10
)

// leaseKey names a lease.
type leaseKey struct {
	job   uuid.UUID
	epoch uint64
}

// lease is one job on this daemon, from its offer until the server has acknowledged everything. It is the job's Sink.
type lease struct {
	key   leaseKey
	offer *provisionerpb.Offer // without values if the lease was recovered
	slot  int
	holds bool // whether the lease holds the slot; guarded by Daemon.mu
	log   *slog.Logger
	wake  func() // wakes the session for an event

	stop  chan struct{} // closed to make the job end gracefully
	force chan struct{} // closed to make the job end at once
	dirty notify.Wake   // log lines wait

	disk *journal // nil if it could not be made

	writing sync.Mutex // orders appends to the journal; guards broken and noted
	broken  bool       // the disk accepts no more writes
	noted   []byte     // the hash of the last checkpoint

	pieceBytes int // a larger state is sent in pieces

	mu       sync.Mutex // guards everything below
	records  []record
	memory   map[uint64]*provisionerpb.Event // events that are not on disk
	last     uint64
	acked    uint64
	started  bool
	finished bool
	gone     bool   // forgotten or revoked: nothing more is sent, and new events go only to disk
	canceled bool   // the server asked the job to end
	why      string // why the daemon itself asked the job to end
	stopped  bool
	forced   bool
	pending  []*provisionerpb.LogLine
	changes  []*provisionerpb.Change // waiting with pending
	waiting  int                     // bytes of pending
	logged   int                     // bytes of log so far
	errors   int                     // bytes of error lines beyond maxLog
	full     bool
	dropped  int // number of lines dropped
}

func newLease(key leaseKey, offer *provisionerpb.Offer, file *journal, log *slog.Logger, wake func()) *lease {
	return &lease{
		key: key, offer: offer, log: log.With("job", key.job), wake: wake, disk: file, broken: file == nil,
		pieceBytes: defaultPieceBytes,
		stop:       make(chan struct{}), force: make(chan struct{}), dirty: notify.NewWake(),
		memory: map[uint64]*provisionerpb.Event{},
	}
}

// Log adds one line. It truncates a long line, and drops lines when the log is too long.
func (l *lease) Log(line *provisionerpb.LogLine) {
	line = cleanLine(line)
	size := len(line.Output) + len(line.Stage) + lineCost
	l.mu.Lock()
	if l.finished {
		l.mu.Unlock()
		return
	}
	if l.logged+size > maxLog {
		isError := line.Level == provisionerpb.LogLevel_LOG_LEVEL_ERROR
		if l.full && (!isError || l.errors+size > maxErrors) {
			l.dropped++
			l.mu.Unlock()
			return
		}
		if isError {
			l.errors += size
		}
		if !l.full {
			l.full = true
			l.addLocked(ownLine(provisionerpb.LogLevel_LOG_LEVEL_WARN, line.Stage,
				fmt.Sprintf("The log is longer than %d MiB. From here on, only errors are kept.", maxLog>>20)),
				lineCost)
		}
		if !isError {
			l.dropped++
			l.mu.Unlock()
			return
		}
	}
	l.addLocked(line, size)
	l.unlockAndSend()
}

// unlockAndSend sends what waits: at once if it fills a batch, else soon. Called with mu held, which it releases.
func (l *lease) unlockAndSend() {
	now := l.waiting >= batchBytes
	l.mu.Unlock()
	if now {
		l.flush()
		return
	}
	l.dirty.Poke()
}

// addLocked adds one line of the given size. Called with mu held.
func (l *lease) addLocked(line *provisionerpb.LogLine, size int) {
	l.pending = append(l.pending, line)
	l.waiting += size
	l.logged += size
}

// Change journals a step of a change at once, and sends it with the next log lines, with which it is also synced to
// disk.
func (l *lease) Change(change *provisionerpb.Change) {
	change = &provisionerpb.Change{Address: validText(change.GetAddress()), Creates: change.GetCreates(),
		End: change.GetEnd()}
	l.writing.Lock()
	if !l.broken {
		if _, err := l.disk.append(kindChange, change, false); err != nil {
			l.leaveDisk(err)
		}
	}
	l.writing.Unlock()
	l.mu.Lock()
	if l.finished {
		l.mu.Unlock()
		return
	}
	l.changes = append(l.changes, change)
	l.waiting += len(change.GetAddress()) + lineCost
	l.unlockAndSend()
}

// Checkpoint journals a state, which is on disk when Checkpoint returns unless the disk fails.
func (l *lease) Checkpoint(state []byte) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.flushLocked()
	ref := refOf(state)
	if bytes.Equal(l.noted, ref.GetSha256()) {
		return
	}
	l.noted = ref.GetSha256()
	checkpoint := &provisionerpb.Checkpoint{State: state}
	if len(state) > l.pieceBytes {
		l.appendPiecesLocked(state)
		checkpoint = &provisionerpb.Checkpoint{StateInPieces: ref}
	}
	l.appendLocked(&provisionerpb.Event{Event: &provisionerpb.Event_Checkpoint{Checkpoint: checkpoint}}, true)
}

// appendPiecesLocked journals the pieces of a state, which are synced with the event that follows them. Called with
// writing held.
func (l *lease) appendPiecesLocked(state []byte) {
	_ = pieces(state, l.pieceBytes, func(event *provisionerpb.Event) error {
		l.appendLocked(event, false)
		return nil
	})
}

// Resources journals the resources that exist so far.
func (l *lease) Resources(resources []*provisionerpb.Resource) {
	event := &provisionerpb.Event{Event: &provisionerpb.Event_Resources{Resources: &provisionerpb.Resources{Resources: resources}}}
	if _, err := proto.Marshal(event); err != nil {
		cleanMessage(event.ProtoReflect())
	}
	if _, err := proto.Marshal(event); err != nil || proto.Size(event) > maxMessage-1024 {
		l.log.Warn("cannot report resources", "err", err, "bytes", proto.Size(event))
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.flushLocked()
	l.appendLocked(event, false)
}

// finish journals the result, the last event.
func (l *lease) finish(result *provisionerpb.Result) {
	l.writing.Lock()
	l.flushLocked()
	if state := takeOut(result, l.pieceBytes); state != nil {
		l.appendPiecesLocked(state)
	}
	l.appendLocked(&provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: sendable(result)}}, true)
	l.writing.Unlock()
	l.wake()
}

// flush journals waiting log lines.
func (l *lease) flush() {
	l.writing.Lock()
	l.flushLocked()
	l.writing.Unlock()
}

// flushLocked journals waiting log lines. Called with writing held.
func (l *lease) flushLocked() {
	l.mu.Lock()
	lines, changes := l.pending, l.changes
	l.pending, l.changes, l.waiting = nil, nil, 0
	l.mu.Unlock()
	if len(lines)+len(changes) > 0 {
		// Begun changes must survive a power cut.
		l.appendLocked(&provisionerpb.Event{Event: &provisionerpb.Event_Log{Log: &provisionerpb.LogBatch{Lines: lines,
			Changes: changes}}}, len(changes) > 0)
	}
}

// appendLocked numbers an event and journals it. If the disk fails, this and all later events stay in memory, because
// the journal must not have a gap. Called with writing held.
func (l *lease) appendLocked(event *provisionerpb.Event, sync bool) {
	l.mu.Lock()
	if l.finished {
		l.mu.Unlock()
		return
	}
	event.JobId, event.Epoch, event.Seq, event.At = l.key.job[:], l.key.epoch, l.last+1, timestamppb.Now()
	l.mu.Unlock()
	var at record
	inMemory := l.broken
	if !inMemory {
		var err error
		if at, err = l.disk.append(kindEvent, event, sync); err != nil {
			l.leaveDisk(err)
			inMemory = true
		}
	}
	at.seq = event.Seq
	l.mu.Lock()
	if inMemory && !l.gone {
		l.memory[event.Seq] = event
	}
	l.records = append(l.records, at)
	l.last, l.finished = event.Seq, event.GetResult() != nil
	l.mu.Unlock()
	l.wake()
}

// leaveDisk keeps this and all later events in memory, because the journal cannot be written. If its disk is full, the
// job's log says so. Called with writing held, or before other goroutines know the lease.
func (l *lease) leaveDisk(err error) {
	l.broken = true
	full := disk.Fault(err, provisionersDisk)
	if full == nil {
		l.log.Warn("journal not writable, keeping the rest of this job in memory", "err", err)
		return
	}
	l.log.Warn("journal not writable, keeping the rest of this job in memory", "err", full)
	l.mu.Lock()
	l.addLocked(ownLine(provisionerpb.LogLevel_LOG_LEVEL_WARN, "Journal",
		full.Error()+" The job goes on. If the provisioner is killed before the job ends, it cannot say what the job "+
			"did."), lineCost)
	l.mu.Unlock()
	l.dirty.Poke()
}

// next returns the first event after seq, or nil. It reads from disk.
func (l *lease) next(seq uint64) (*provisionerpb.Event, error) {
	l.mu.Lock()
	at, ok := after(l.records, seq)
	event, gone := l.memory[at.seq], l.gone
	l.mu.Unlock()
	if !ok || gone {
		return nil, nil
	}
	if event == nil {
		var err error
		if event, err = l.disk.event(at); err != nil {
			return nil, err
		}
	}
	return event, nil
}

// acknowledge records that the server has stored all events up to seq. start is set if this confirms the lease and its
// job has not begun; done is set if the lease is no longer needed.
func (l *lease) acknowledge(seq uint64) (start, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.records, func(r record) bool { return r.seq == 0 }); i >= 0 {
		// This is the result of a recovered job. After a power cut the server may have events that the disk lacks.
		l.last = max(seq, l.last)
		for ; i < len(l.records); i++ {
			l.last++
			l.records[i].seq = l.last
		}
	}
	for s := range l.memory {
		if s <= seq {
			delete(l.memory, s)
		}
	}
	l.acked = max(l.acked, seq)
	start = !l.started && !l.finished && !l.gone
	l.started = true
	return start, l.finished && l.acked >= l.last && !l.gone
}

// leave gives up the lease: no further event is kept or sent. lost is set if some events were not acknowledged.
func (l *lease) leave() (lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost = l.acked < l.last
	l.gone, l.memory = true, nil
	return lost
}

// hasBegun reports whether the job was started, now or by an earlier process. Daemon.mu may be held.
func (l *lease) hasBegun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started
}

// askStop asks the job to end gracefully.
func (l *lease) askStop(canceled bool, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.canceled = l.canceled || canceled
	if l.why == "" {
		l.why = why
	}
	if !l.stopped {
		l.stopped = true
		close(l.stop)
	}
}

// askForce asks the job to end at once.
func (l *lease) askForce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.forced {
		l.forced = true
		close(l.force)
	}
}

// describe returns the lease for a Hello.
func (l *lease) describe() *provisionerpb.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &provisionerpb.Lease{JobId: l.key.job[:], Epoch: l.key.epoch, LastSeq: l.last, Finished: l.finished}
}

// ownLine returns a line that the daemon itself writes to a job's log.
func ownLine(level provisionerpb.LogLevel, stage, text string) *provisionerpb.LogLine {
	return &provisionerpb.LogLine{At: timestamppb.Now(), Level: level,
		Source: provisionerpb.LogSource_LOG_SOURCE_DAEMON, Stage: stage, Output: text}
}

// cleanLine returns a copy of a line that any database accepts: truncated, valid UTF-8, without NUL.
func cleanLine(line *provisionerpb.LogLine) *provisionerpb.LogLine {
	out := &provisionerpb.LogLine{At: line.GetAt(), Level: line.GetLevel(), Source: line.GetSource(),
		Stage: cleanText(line.GetStage(), 256), Output: cleanText(line.GetOutput(), maxLine)}
	if out.At == nil {
		out.At = timestamppb.Now()
	}
	return out
}

func cleanText(text string, limit int) string {
	if len(text) > limit {
		text = fmt.Sprintf("%s … [cut: %d bytes]", text[:limit-64], len(text))
	}
	return validText(text)
}

func validText(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
