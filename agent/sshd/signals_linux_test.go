package sshd_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// ignored tells the test that its process was started with signals ignored.
const ignored = "CODER_TEST_SIGNALS_IGNORED"

// TestIgnoredSignals: an agent that was started by nohup, or by a script that ignores signals, hands that on to no session.
func TestIgnoredSignals(t *testing.T) {
	if os.Getenv(ignored) == "" {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `trap "" HUP INT QUIT PIPE TSTP TERM; exec "$0" -test.run='^TestIgnoredSignals$' -test.timeout=2m`, os.Args[0])
		cmd.Env = append(os.Environ(), ignored+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	h := start(t, nil)
	for _, command := range []string{"grep SigIgn /proc/self/status", "sh -c 'grep SigIgn /proc/self/status'"} {
		out, _, status := run(t, h.ssh(t.Context(), nil, command))
		if fields := strings.Fields(out); status != 0 || len(fields) != 2 || strings.Trim(fields[1], "0") != "" {
			t.Errorf("a session's program has these signals ignored: %q, status %d", out, status)
		}
	}
}
