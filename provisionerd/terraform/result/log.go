package result

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
)

// Stages of a job, as shown to users.
const (
	stageSetup   = "Setting up"
	StageInit    = "Initializing Terraform Directory"
	StageDetect  = "Detecting template parameters"
	StagePlan    = "Planning infrastructure"
	StageStart   = "Starting workspace"
	StageStop    = "Stopping workspace"
	StageDelete  = "Deleting workspace"
	StageCleanup = "Cleaning up"
	// StageRehearsal is when a prebuilt workspace's claim is planned.
	StageRehearsal = "Planning the claim"
)

// Log writes a job's log. The stage is the job's current one.
type Log struct {
	sink job.Sink

	mu    sync.Mutex
	stage string
	debug bool
}

// NewLog returns a log in the first stage of a job, which passes its lines to sink.
func NewLog(sink job.Sink) *Log { return &Log{sink: sink, stage: stageSetup} }

// Enter begins a stage.
func (l *Log) Enter(stage string) {
	l.mu.Lock()
	l.stage = stage
	l.mu.Unlock()
}

// ShowDebug decides whether the log contains lines of the level debug and below.
func (l *Log) ShowDebug(show bool) {
	l.mu.Lock()
	l.debug = show
	l.mu.Unlock()
}

// Stage returns the current stage.
func (l *Log) Stage() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage
}

// Say writes a message of the daemon itself.
func (l *Log) Say(level provisionerpb.LogLevel, format string, args ...any) {
	l.write(level, provisionerpb.LogSource_LOG_SOURCE_DAEMON, fmt.Sprintf(format, args...))
}

func (l *Log) write(level provisionerpb.LogLevel, source provisionerpb.LogSource, text string) {
	l.mu.Lock()
	stage, debug := l.stage, l.debug
	l.mu.Unlock()
	if level <= provisionerpb.LogLevel_LOG_LEVEL_DEBUG && !debug {
		return
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\r\n"), "\n") {
		l.sink.Log(&provisionerpb.LogLine{
			At: timestamppb.Now(), Level: level, Source: source, Stage: stage, Output: printable.LogLine(line),
		})
	}
}

// NewStderr returns a writer for what Terraform writes outside its JSON.
func NewStderr(log *Log) io.Writer { return stderrLines{log} }

// stderrLines passes on what Terraform writes outside its JSON: crashes, and errors before it has begun.
type stderrLines struct{ log *Log }

func (s stderrLines) Write(line []byte) (int, error) {
	if text := strings.TrimSpace(string(line)); text != "" {
		s.log.write(provisionerpb.LogLevel_LOG_LEVEL_ERROR, provisionerpb.LogSource_LOG_SOURCE_EXECUTOR, string(line))
	}
	return len(line), nil
}
