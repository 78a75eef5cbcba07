//go:build unix

package scratch_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/scratch"
)

// TestMain also acts as the process that holds a folder until it is killed.
func TestMain(m *testing.M) {
	if prefix := os.Getenv("SCRATCH_HOLD"); prefix != "" {
		folder, err := scratch.Make(prefix)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(folder.Path())
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(3) // without Close
	}
	os.Exit(m.Run())
}

// holder starts a process that holds a folder in tmp, and returns the folder and a function that kills the process.
func holder(t *testing.T, tmp string) (path string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SCRATCH_HOLD=coder-git-", "TMPDIR="+tmp)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		stdin.Close()
	})
	t.Cleanup(kill)
	path, err = bufio.NewReader(stdout).ReadString('\n')
	path = strings.TrimSpace(path)
	if err != nil || filepath.Dir(path) != tmp {
		t.Fatalf("holder printed %q, %v", path, err)
	}
	return path, kill
}

func sweep(t *testing.T, tmp string) {
	t.Helper()
	if err := scratch.Sweep(tmp, os.Geteuid()); err != nil {
		t.Error(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestSweep: of two owners on one machine, Sweep removes the folder of the killed one, with its content.
func TestSweep(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	killed, kill := holder(t, tmp)
	living, _ := holder(t, tmp)
	for _, dir := range []string{killed, living} {
		if err := os.WriteFile(filepath.Join(dir, "coder"), []byte("program"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sweep(t, tmp)
	if !exists(killed) || !exists(living) {
		t.Fatal("a folder in use was removed")
	}
	kill()
	sweep(t, tmp)
	if exists(killed) {
		t.Error("the folder of the killed process is still there")
	}
	if !exists(filepath.Join(living, "coder")) {
		t.Error("the folder of the living process was removed")
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// abandoned creates a folder as a killed process leaves it.
func abandoned(t *testing.T, path string) string {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(path, scratch.PipeName), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSweepLeavesAlone: everything here looks like something to remove, but is not.
func TestSweepLeavesAlone(t *testing.T) {
	t.Parallel()
	tmp, outside := t.TempDir(), t.TempDir()
	victim := abandoned(t, filepath.Join(outside, "victim"))
	inside := abandoned(t, filepath.Join(tmp, "mine"))
	kept := map[string]string{"outside": victim, "another name": inside}
	link := func(why, name, to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(tmp, name)); err != nil {
			t.Fatal(err)
		}
		kept[why] = filepath.Join(tmp, name)
	}
	link("link to a folder outside", "coder-git-1", victim)
	link("link to a folder here", "coder-git-2", "mine")
	young := filepath.Join(tmp, "coder.young0")
	if err := os.Mkdir(young, 0o700); err != nil {
		t.Fatal(err)
	}
	kept["no pipe yet"] = young
	wide := abandoned(t, filepath.Join(tmp, "coder.wide00"))
	if err := os.Chmod(wide, 0o755); err != nil {
		t.Fatal(err)
	}
	kept["others may enter"] = wide
	file := filepath.Join(tmp, "coder.file00")
	if err := os.MkdirAll(filepath.Join(file, scratch.PipeName), 0o700); err != nil {
		t.Fatal(err)
	}
	kept["no pipe but a folder"] = file
	linked := filepath.Join(tmp, "coder.linked")
	if err := os.Mkdir(linked, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(victim, scratch.PipeName), filepath.Join(linked, scratch.PipeName)); err != nil {
		t.Fatal(err)
	}
	kept["a link to another's pipe"] = linked
	if os.Geteuid() == 0 {
		foreign := abandoned(t, filepath.Join(tmp, "coder-agent-0123456789abcdef"))
		if err := os.Chown(foreign, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		kept["another account's"] = foreign
	}
	sweep(t, tmp)
	for why, path := range kept {
		if !exists(path) {
			t.Errorf("%s: %s was removed", why, path)
		}
	}
	if !exists(filepath.Join(victim, scratch.PipeName)) {
		t.Error("the victim's pipe was removed")
	}
}

// TestSweepDoesNotFollow: Sweep removes links inside an abandoned folder, but not what they point to.
func TestSweepDoesNotFollow(t *testing.T) {
	t.Parallel()
	tmp, outside := t.TempDir(), t.TempDir()
	precious := filepath.Join(outside, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	folder := abandoned(t, filepath.Join(tmp, "coder.abcdef"))
	for name, to := range map[string]string{"dir": outside, "file": precious} {
		if err := os.Symlink(to, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	sweep(t, tmp)
	if exists(folder) {
		t.Error("the abandoned folder is still there")
	}
	if !exists(precious) {
		t.Error("a file behind a link was removed")
	}
}

// TestSweepOfInterruptedSweep: the next sweep finishes one that was interrupted.
func TestSweepOfInterruptedSweep(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	half := abandoned(t, filepath.Join(tmp, "coder-git-1"))
	dir, err := os.Open(half)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	sweep(t, tmp)
	if !exists(half) {
		t.Error("a folder that another sweep is removing was removed")
	}
	// Closing dir is not enough: until it executes its program, a process that another test has just forked shares the lock.
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	sweep(t, tmp)
	if exists(half) {
		t.Error("the rest of an interrupted sweep is still there")
	}
}

// TestTake: Take creates a well-known folder, reuses it after a kill, and refuses another account's.
func TestTake(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	path := filepath.Join(tmp, "coder-agent-1")
	for range 2 {
		folder, err := scratch.Take(path)
		if err != nil {
			t.Fatal(err)
		}
		sweep(t, tmp)
		if !exists(path) {
			t.Error("a folder in use was removed")
		}
		if err := folder.Close(); err != nil || exists(path) {
			t.Errorf("after Close: exists %v, %v", exists(path), err)
		}
		abandoned(t, path)
	}
	link, wide := filepath.Join(tmp, "coder-agent-2"), filepath.Join(tmp, "coder-agent-3")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(abandoned(t, wide), 0o777); err != nil {
		t.Fatal(err)
	}
	planted := []string{link, wide}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(tmp, "coder-agent-4")
		if err := os.Chown(abandoned(t, foreign), 12345, 12345); err != nil {
			t.Fatal(err)
		}
		planted = append(planted, foreign)
	}
	for _, path := range planted {
		if _, err := scratch.Take(path); !errors.Is(err, scratch.ErrTaken) {
			t.Errorf("Take(%s): %v", path, err)
		}
		if !exists(path) {
			t.Errorf("Take(%s) removed it", path)
		}
	}
	held, err := scratch.Take(path + "0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scratch.Take(path + "0"); !errors.Is(err, scratch.ErrTaken) {
		t.Errorf("a folder in use was taken: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(tmp, "coder-agent-*"))
	if err != nil || len(left) != len(planted)+1 { // and the last abandoned one
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestRace: while folders are created, taken and closed, sweeps remove none that is held.
func TestRace(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	stop := make(chan struct{})
	var makers, sweepers sync.WaitGroup
	for range 2 {
		sweepers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					sweep(t, tmp)
				}
			}
		})
	}
	for n := range 4 {
		makers.Go(func() {
			for range 300 {
				take := func() (*scratch.Folder, error) { return scratch.Make("coder-git-") }
				if n == 0 {
					take = func() (*scratch.Folder, error) { return scratch.Take(filepath.Join(tmp, "coder-agent-1")) }
				}
				folder, err := take()
				if err != nil {
					t.Error(err)
					return
				}
				for range 5 {
					if err := os.WriteFile(filepath.Join(folder.Path(), "used"), nil, 0o600); err != nil {
						t.Errorf("held folder: %v", err)
						return
					}
				}
				if err := folder.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	close(stop)
	sweepers.Wait()
	sweep(t, tmp)
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
