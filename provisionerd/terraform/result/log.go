package result

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
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

// maxLine is how many bytes of one line go into the job's log.
const maxLine = 8 << 10

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
			At: timestamppb.Now(), Level: level, Source: source, Stage: stage, Output: logLine(line),
		})
	}
}

// CleanLine makes text from a template fit for a database and a terminal: valid, printable text of at most maxLine bytes, and a note if it
// removed some of the text.
func CleanLine(line string) string {
	line, note := cutLine(line)
	return tty.Clean(line) + note
}

// logLine is cleanLine for a log, which keeps colours.
func logLine(line string) string {
	line, note := cutLine(line)
	return tty.CleanColor(line) + note
}

// cutLine bounds a line to maxLine bytes of whole characters.
func cutLine(line string) (text, note string) {
	line = strings.TrimRight(line, "\r")
	if len(line) <= maxLine {
		return line, ""
	}
	note = fmt.Sprintf(" … (cut: the line has %d bytes)", len(line))
	line = line[:maxLine]
	for len(line) > 0 && !utf8.RuneStart(line[len(line)-1]) {
		line = line[:len(line)-1]
	}
	if r, _ := utf8.DecodeLastRuneInString(line); r == utf8.RuneError && len(line) > 0 {
		line = line[:len(line)-1]
	}
	return line, note
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
