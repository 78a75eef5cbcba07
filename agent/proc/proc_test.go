//go:build linux

package proc_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

func TestScrub(t *testing.T) {
	t.Parallel()
	got := proc.Scrub([]string{"A=1", "CODER_AGENT_TOKEN=s", "CODER_AGENT_TOKEN_FILE=f", "CODER_AGENT_CHILD=1", "CODER_AGENT_URL=u",
		"CODER_SESSION_TOKEN=s", "GOMEMLIMIT=1", "junk", "=x", "EMPTY="})
	if diff := cmp.Diff([]string{"A=1", "CODER_AGENT_URL=u", "EMPTY="}, got); diff != "" {
		t.Errorf("scrub (-want +got):\n%s", diff)
	}
}

func TestEnv(t *testing.T) {
	t.Parallel()
	env := proc.NewEnv([]string{"A=1", "HOME=/h", "A=2"})
	env.Set("B", env.Expand("${A}$HOME$NOT$$A$"))
	env.Default("A", "3")
	env.Default("C", "c")
	if diff := cmp.Diff([]string{"A=2", "HOME=/h", "B=2/h$NOT$2$", "C=c"}, env.List()); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	user, env := proc.User{Home: "/home/ann"}, proc.NewEnv([]string{"WORK=/w"})
	for in, want := range map[string]string{
		"": "/home/ann", "~": "/home/ann", "~/x": "/home/ann/x", "x/../y": "/home/ann/y", "$WORK/a": "/w/a", "/abs/": "/abs", "~bob": "/home/ann/~bob",
	} {
		if got := user.Directory(in, env); got != want {
			t.Errorf("directory %q: got %q, want %q", in, got, want)
		}
	}
}

func TestCurrentUser(t *testing.T) {
	t.Parallel()
	u := proc.CurrentUser()
	if u.Name == "" || u.Home == "" || !strings.HasPrefix(u.Shell, "/") || u.UID != os.Getuid() {
		t.Errorf("current user: %+v", u)
	}
}

func TestPreferAsVictim(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := proc.PreferAsVictim(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := proc.SignalSession(cmd.Process.Pid, syscall.Signal(0)); err != nil {
		t.Error(err)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := proc.PreferAsVictim(cmd.Process.Pid); err != nil {
		t.Errorf("a process that has ended: %v, want no error", err)
	}
}

func FuzzAcceptEnv(f *testing.F) {
	f.Add("LANG", "C.UTF-8")
	f.Add("CODER_AGENT_TOKEN", "x")
	f.Add("A=B", "x\x00y")
	f.Fuzz(func(t *testing.T, name, value string) {
		if !proc.AcceptEnv(name, value) {
			return
		}
		if strings.ContainsAny(name, "= \x00\n") || strings.ContainsRune(value, 0) || proc.Internal(name) {
			t.Errorf("accepted %q=%q", name, value)
		}
		env := proc.NewEnv([]string{name + "=" + value})
		if got, ok := env.Get(name); !ok || got != value {
			t.Errorf("%q: got %q, want %q", name, got, value)
		}
		if got := env.Expand("${" + name + "}"); got != value {
			t.Errorf("expand %q: got %q, want %q", name, got, value)
		}
	})
}
