package terraform

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
	stageInit    = "Initializing Terraform Directory"
	stageDetect  = "Detecting template parameters"
	stagePlan    = "Planning infrastructure"
	stageStart   = "Starting workspace"
	stageStop    = "Stopping workspace"
	stageDelete  = "Deleting workspace"
	stageCleanup = "Cleaning up"
	// stageRehearsal is when a prebuilt workspace's claim is planned.
	stageRehearsal = "Planning the claim"
)

// maxLine is how many bytes of one line go into the job's log.
const maxLine = 8 << 10

// logger writes a job's log. The stage is the job's current one.
type logger struct {
	sink job.Sink

	mu    sync.Mutex
	stage string
	debug bool
}

// newLogger returns a log in the first stage of a job, which passes its lines to sink.
func newLogger(sink job.Sink) *logger { return &logger{sink: sink, stage: stageSetup} }

// enter begins a stage.
func (l *logger) enter(stage string) {
	l.mu.Lock()
	l.stage = stage
	l.mu.Unlock()
}

// showDebug decides whether the log contains lines of the level debug and below.
func (l *logger) showDebug(show bool) {
	l.mu.Lock()
	l.debug = show
	l.mu.Unlock()
}

// current returns the stage.
func (l *logger) current() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage
}

// say writes a message of the daemon itself.
func (l *logger) say(level provisionerpb.LogLevel, format string, args ...any) {
	l.write(level, provisionerpb.LogSource_LOG_SOURCE_DAEMON, fmt.Sprintf(format, args...))
}

func (l *logger) write(level provisionerpb.LogLevel, source provisionerpb.LogSource, text string) {
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

// cleanLine makes text from a template fit for a database and a terminal: valid, printable text of at most maxLine bytes, and a note if it
// removed some of the text.
func cleanLine(line string) string {
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

// newStderr returns a writer for what Terraform writes outside its JSON.
func newStderr(log *logger) io.Writer { return stderrLines{log} }

// stderrLines passes on what Terraform writes outside its JSON: crashes, and errors before it has begun.
type stderrLines struct{ log *logger }

func (s stderrLines) Write(line []byte) (int, error) {
	if text := strings.TrimSpace(string(line)); text != "" {
		s.log.write(provisionerpb.LogLevel_LOG_LEVEL_ERROR, provisionerpb.LogSource_LOG_SOURCE_EXECUTOR, string(line))
	}
	return len(line), nil
}
