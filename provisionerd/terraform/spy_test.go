package terraform_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// started is how a program was started.
type started struct {
	Args  []string
	Env   []string
	Dir   string
	Umask string
	Files []string // inherited, beyond the standard ones
}

// spyStart records how this program was started in the folder <program>.starts, if a test has made one. A program that only stands before
// another, whose path is in the file <program>.before, then becomes that one. A job cannot write to the folder, so only starts outside of
// a sandbox are recorded.
func spyStart() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	dir := self + ".starts"
	if _, err := os.Stat(dir); err == nil {
		s := started{Args: os.Args, Env: os.Environ()}
		s.Dir, _ = os.Getwd() // whatever cannot be read stays empty
		status, _ := os.ReadFile("/proc/self/status")
		_, s.Umask, _ = strings.Cut(string(status), "\nUmask:\t")
		s.Umask, _, _ = strings.Cut(s.Umask, "\n")
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, entry := range entries {
			info, _ := os.ReadFile("/proc/self/fdinfo/" + entry.Name())
			_, flags, _ := strings.Cut(string(info), "flags:\t")
			var set int
			_, err := fmt.Sscanf(flags, "%o", &set)
			number, _ := strconv.Atoi(entry.Name())
			if to, _ := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && set&syscall.O_CLOEXEC == 0 && number > 2 {
				s.Files = append(s.Files, to)
			}
		}
		text, _ := json.Marshal(s)
		_ = os.WriteFile(filepath.Join(dir, fmt.Sprint(os.Getpid())+"-"+filepath.Base(os.Args[0])), text, 0o600)
	}
	if program, err := os.ReadFile(self + ".before"); err == nil {
		fmt.Fprintln(os.Stderr, syscall.Exec(string(program), os.Args, os.Environ()))
		os.Exit(1)
	}
}
