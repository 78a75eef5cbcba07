package keeper

import (
	"log/slog"
	"os"
	"time"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	childEnv     = "CODER_AGENT_CHILD"           // set for the agent's own process
	returningEnv = "CODER_AGENT_CHILD_RETURNING" // set for the agent's own process after the workspace stopped

	minPause = time.Second
	maxPause = time.Minute
	// wellFor is how long an agent must run for its next crash to count as the first.
	wellFor = 5 * time.Minute
)

// Exit statuses by which an agent asks to be started again.
const (
	RestartCode = 75 // with the terminals that run
	StoppedCode = 76 // after the workspace stopped: without them
)

// panicCode is the exit status of a Go program that crashes.
const panicCode = 2

// IsChild reports whether this process is a keeper's agent.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Returning reports whether this process is the agent of a workspace that stopped.
func Returning() bool {
	defer os.Unsetenv(returningEnv)
	return os.Getenv(returningEnv) != ""
}

// Options configures a keeper.
type Options struct {
	Logger *slog.Logger
	Token  secret.Token // of the agent
}
