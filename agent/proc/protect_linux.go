package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// oomEnv tells a process of the agent's what its oom_score_adj was before Protect. Programs of the workspace never see it.
const oomEnv = "CODER_AGENT_CHILD_OOM"

// protectedScore makes a process one of the last victims when memory runs out; -1000 would make it none at all, and the
// machine's own services shall go after it.
const protectedScore = -800

// Protect makes this process an unlikely victim when memory runs out, where it may (CAP_SYS_RESOURCE), and keeps others of the
// same account from reading its memory and environment, where the agent's token is. What it starts afterwards, with
// ProtectedEnv, knows what was before. Call it once, early.
func Protect() error {
	base, err := oomBase()
	if err != nil {
		return err
	}
	// Without the privilege everything stays as it is, and PreferAsVictim makes the difference.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(min(base, protectedScore))), 0)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep others from reading this process: %w", err)
	}
	return nil
}

// ProtectedEnv is what a protected process's own child of the agent needs in its environment.
func ProtectedEnv() string {
	base, err := oomBase()
	if err != nil {
		base = 0
	}
	return oomEnv + "=" + strconv.Itoa(base)
}

// oomBase is the score that programs of the workspace start from: this process's before Protect.
var oomBase = sync.OnceValues(func() (int, error) {
	if base, err := strconv.Atoi(os.Getenv(oomEnv)); err == nil {
		return base, nil
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(own)))
})
