package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows/registry"
)

// CurrentUser returns the account of this process.
func CurrentUser() User {
	u := User{Name: firstOf(os.Getenv("USERNAME"), "user"), UID: os.Getuid(), GID: os.Getgid(), Shell: defaultShell()}
	// The template's HOME takes precedence: several workspaces may share an account. One of another system, such as
	// /c/Users/ann, does not count.
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		u.Home = existingDir(home)
	}
	u.Home = firstOf(u.Home, existingDir(os.Getenv("USERPROFILE")), systemDrive())
	return u
}

func systemDrive() string { return firstOf(os.Getenv("SystemDrive"), "C:") + `\` }

// defaultShell returns the shell that $SHELL names, or else the one that the machine's administrator chose for OpenSSH,
// or else PowerShell.
func defaultShell() string {
	for _, name := range []string{os.Getenv("SHELL"), opensshShell(), "powershell.exe", os.Getenv("ComSpec"),
		"cmd.exe"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil && filepath.IsAbs(path) {
			return path
		}
	}
	return filepath.Join(systemDrive(), `Windows\System32\cmd.exe`)
}

// opensshShell returns the DefaultShell of Windows' OpenSSH, or "".
func opensshShell() string {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, `SOFTWARE\OpenSSH`, registry.QUERY_VALUE)
	if err != nil {
		return ""
	}
	defer key.Close()
	path, _, err := key.GetStringValue("DefaultShell")
	if err != nil {
		return ""
	}
	return path
}

// shellKind returns the name of a shell without folder and ending: "cmd", "powershell", "pwsh", "bash".
func shellKind(shell string) string {
	return strings.TrimSuffix(strings.ToLower(filepath.Base(shell)), ".exe")
}

// LoginArgs returns the arguments of an interactive shell, the first of which is its name.
func LoginArgs(shell string) []string {
	switch shellKind(shell) {
	case "cmd":
		return []string{shell}
	case "powershell", "pwsh":
		return []string{shell, "-NoLogo"}
	}
	return []string{shell, "-l"}
}

// CommandArgs returns the arguments with which a shell runs a command. PowerShell would end with status 1 for every
// failure: it is told to end with that of the program that ran last.
func CommandArgs(shell, command string) []string {
	switch shellKind(shell) {
	case "cmd":
		return []string{shell, "/d", "/s", "/c", command}
	case "powershell", "pwsh":
		return []string{shell, "-NoLogo", "-Command",
			command + "\nif (-not $?) { if ($LASTEXITCODE) { exit $LASTEXITCODE }; exit 1 }"}
	}
	return []string{shell, "-c", command}
}

// SetAccount sets the variables that describe the account. HOME is for programs that come from other systems, such as
// git.
func (u User) SetAccount(env *Env) {
	env.Set("HOME", u.Home)
	env.Set("USERPROFILE", u.Home)
	env.Set("USERNAME", u.Name)
	env.Set("SHELL", u.Shell)
	env.Default("SystemRoot", systemDrive()+"Windows") // without it programs do not start
	env.Default("PATH", systemDrive()+`Windows\System32`)
}
