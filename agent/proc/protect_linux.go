package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// oomEnv names the variable that holds the oom_score_adj from before Protect, for the agent's processes. Programs of
// the workspace never see it.
const oomEnv = "CODER_AGENT_CHILD_OOM"

// protectedScore makes a process one of the last victims when memory runs out. -1000 would exempt it entirely, but the
// machine's own services must outlive it.
const protectedScore = -800

// Protect makes this process an unlikely victim when memory runs out, if it has CAP_SYS_RESOURCE, and keeps other
// processes of the account from reading its memory and environment, which hold the agent's token. Children that get
// ProtectedEnv know the earlier score. Call it once, early.
func Protect() error {
	base, err := oomBase()
	if err != nil {
		return err
	}
	// Without the privilege this changes nothing, and only PreferAsVictim has an effect.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(min(base, protectedScore))), 0)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep others from reading this process: %w", err)
	}
	return nil
}

// ProtectedEnv returns the variable that a child of a protected process needs, if it is part of the agent.
func ProtectedEnv() string {
	base, err := oomBase()
	if err != nil {
		base = 0
	}
	return oomEnv + "=" + strconv.Itoa(base)
}

// oomBase returns the score from which programs of the workspace start: this process's before Protect.
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
