package sshd_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// ignored names the variable that is set if the test's process was started with signals ignored.
const ignored = "CODER_TEST_SIGNALS_IGNORED"

// TestIgnoredSignals: sessions of an agent started by nohup, or by a script that ignores signals, do not inherit ignored signals.
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
		mask, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(out, "SigIgn:")), 16, 64)
		if err != nil || status != 0 {
			t.Fatalf("%s: %q, status %d, %v", command, out, status, err)
		}
		// Others may be ignored where the tests run: the C library reserves some real-time signals.
		for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTERM} {
			if mask&(1<<(s-1)) != 0 {
				t.Errorf("%s: %v is ignored", command, s)
			}
		}
	}
}
