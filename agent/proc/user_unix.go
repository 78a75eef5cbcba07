//go:build unix

package proc

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// CurrentUser returns the account of this process. Fields missing from passwd (containers run under ids that no file
// lists) come from the environment, or else from defaults that every system has.
func CurrentUser() User {
	u := User{UID: os.Getuid(), GID: os.Getgid()}
	if entry, err := lookupPasswd("/etc/passwd", u.UID); err == nil {
		u = entry
	}
	u = systemAccount(u)
	if u.Name == "" {
		u.Name = firstOf(os.Getenv("USER"), os.Getenv("LOGNAME"), strconv.Itoa(u.UID))
	}
	// The template's HOME takes precedence: several workspaces may share an account.
	u.Home = firstOf(existingDir(os.Getenv("HOME")), existingDir(u.Home), "/")
	if !usableShell(u.Shell) {
		u.Shell = defaultShell()
	}
	return u
}

// usableShell reports whether a shell runs commands. The shells of service accounts refuse every sign-in, but an agent
// that runs as such an account does so on purpose.
func usableShell(path string) bool {
	switch filepath.Base(path) {
	case "nologin", "false":
		return false
	}
	return isExecutable(path)
}

// lookupPasswd returns the entry of uid in a passwd file.
func lookupPasswd(path string, uid int) (User, error) {
	file, err := os.Open(path)
	if err != nil {
		return User{}, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if u, ok := parsePasswd(lines.Text()); ok && u.UID == uid {
			return u, nil
		}
	}
	return User{}, errors.Join(lines.Err(), errors.New("no passwd entry for uid "+strconv.Itoa(uid)))
}

func parsePasswd(line string) (User, bool) {
	f := strings.Split(line, ":")
	if len(f) != 7 || strings.HasPrefix(line, "#") {
		return User{}, false
	}
	uid, err := strconv.Atoi(f[2])
	if err != nil {
		return User{}, false
	}
	gid, err := strconv.Atoi(f[3])
	if err != nil {
		return User{}, false
	}
	return User{Name: f[0], UID: uid, GID: gid, Home: f[5], Shell: f[6]}, true
}

func defaultShell() string {
	if s := os.Getenv("SHELL"); usableShell(s) {
		return s
	}
	for _, name := range shells {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return "/bin/sh"
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return filepath.IsAbs(path) && err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// LoginArgs returns the arguments of an interactive shell, the first of which is its name.
func LoginArgs(shell string) []string { return []string{"-" + filepath.Base(shell)} }

// CommandArgs returns the arguments with which a shell runs a command.
func CommandArgs(shell, command string) []string { return []string{shell, "-c", command} }

// SetAccount sets the variables that describe the account, and those that every program expects.
func (u User) SetAccount(env *Env) {
	env.Set("HOME", u.Home)
	env.Set("USER", u.Name)
	env.Set("LOGNAME", u.Name)
	env.Set("SHELL", u.Shell)
	env.Default("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	env.Default("LANG", "C.UTF-8")
}
