// Package usersecret owns the rules that users' secrets obey: what they may be called, which environment variables they
// may set, and which files they may become. The server checks them when a secret is stored, and the agent again before
// it uses one, because a server of another version may have other rules. It knows neither the server nor the agent.
package usersecret

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// Limits of one secret. Sizes are in bytes.
const (
	MaxName        = 64
	MaxDescription = 512
	MaxEnv         = 128
	MaxFile        = 1024
	MaxValue       = 32 << 10 // also what an environment variable may hold
)

// Limits of one user's secrets together. Sizes are in bytes. Linux refuses to start a program whose environment is too
// large.
const (
	MaxSecrets  = 100
	MaxAll      = 1 << 20
	MaxEnvTotal = 256 << 10
)

var (
	nameForm = lazyregexp.New(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?$`)
	envForm  = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// CheckName returns what is wrong with a secret's name, or "".
func CheckName(name string) string {
	switch {
	case name == "":
		return "is required"
	case len(name) > MaxName || !nameForm().MatchString(name):
		return fmt.Sprintf("must be at most %d letters, digits, dots, hyphens and underscores, and cannot begin or "+
			"end with a dot or a hyphen", MaxName)
	}
	return ""
}

// CheckDescription returns what is wrong with a description, or "".
func CheckDescription(text string) string {
	if len(text) > MaxDescription || strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Sprintf("must be at most %d bytes, on one line", MaxDescription)
	}
	return ""
}

// CheckValue returns what is wrong with a value, or "".
func CheckValue(value string) string {
	switch {
	case value == "":
		return "is required"
	case len(value) > MaxValue:
		return fmt.Sprintf("must be at most %d bytes", MaxValue)
	case strings.IndexByte(value, 0) >= 0:
		return "cannot contain a NUL byte"
	}
	return ""
}

// reserved lists variables that no secret may set: those that the agent sets, and those that decide which programs run
// or what they load. A trailing * matches any rest.
var reserved = []string{
	"CODER*", "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "TERM", "TMPDIR", "IFS", "ENV",
	"BASH_*", "PROMPT_COMMAND", "PS4",
	"SHELLOPTS", "BASHOPTS", "LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH", "MALLOC_*",
	"GIT_ASKPASS", "GIT_SSH*", "GIT_CONFIG*", "GIT_EXEC_PATH", "GIT_DIR", "SSH_*", "DISPLAY", "XAUTHORITY", "VSCODE_*",
	"CS_DISABLE_*",
	"NOTIFY_SOCKET", "GOMEMLIMIT", "GOGC", "GODEBUG", "TS_DEBUG_*",
}

// CheckEnv returns what is wrong with the name of the variable that a secret sets, or "". An empty name means no
// variable.
func CheckEnv(name string) string {
	switch {
	case name == "":
		return ""
	case len(name) > MaxEnv || !envForm().MatchString(name):
		return fmt.Sprintf("must be at most %d letters, digits and underscores, and cannot begin with a digit", MaxEnv)
	case isReserved(name):
		return fmt.Sprintf("cannot be %s: the workspace sets it, or it changes how programs start", name)
	}
	return ""
}

// isReserved ignores case: some programs do, too.
func isReserved(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(reserved, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return name == pattern
	})
}

// agentState is where agents keep what they must remember, below home.
const agentState = ".local/state/codermesh-agent"

// CheckFile returns what is wrong with the path of the file that a secret becomes, or "". An empty path means no file.
// Whether an absolute path is below home is only known in the workspace: see Below.
func CheckFile(file string) string {
	if file == "" {
		return ""
	}
	rest, fromHome := strings.CutPrefix(file, "~/")
	if !fromHome {
		rest = strings.TrimPrefix(file, "/")
	}
	switch {
	case len(file) > MaxFile:
		return fmt.Sprintf("must have at most %d bytes", MaxFile)
	case !fromHome && !strings.HasPrefix(file, "/"):
		return "must begin with ~/ or /"
	case !utf8.ValidString(file) || strings.ContainsFunc(file, unicode.IsControl):
		return "must be text without control characters"
	case rest == "" || path.Clean("/"+rest) != "/"+rest:
		return "must name a file, without empty, . or .. elements"
	case strings.ContainsRune(rest, '\\'):
		return "cannot contain a backslash"
	case slices.ContainsFunc(strings.Split(rest, "/"), func(element string) bool { return len(element) > 200 }):
		return "must have elements of at most 200 bytes"
	case fromHome && isBelow(rest, agentState):
		return "cannot be in the folder of the workspace's agent"
	}
	return ""
}

// Below returns where a secret's file is, relative to the home folder of the workspace's account. It returns an error
// for a path that CheckFile refuses, and for an absolute path that is not below home.
func Below(home, file string) (rel string, err error) {
	if problem := CheckFile(file); problem != "" || file == "" {
		return "", errors.New("the path of the file " + problem)
	}
	if rel, ok := strings.CutPrefix(file, "~/"); ok {
		return rel, nil
	}
	home = path.Clean(home)
	rel, ok := strings.CutPrefix(file, strings.TrimSuffix(home, "/")+"/")
	switch {
	case !path.IsAbs(home) || !ok || rel == "":
		return "", fmt.Errorf("the file is not below the home folder %s", home)
	case isBelow(rel, agentState):
		return "", errors.New("the file is in the folder of the workspace's agent")
	}
	return rel, nil
}

// isBelow reports whether a clean relative path is a folder or below it.
func isBelow(rel, folder string) bool { return rel == folder || strings.HasPrefix(rel, folder+"/") }
