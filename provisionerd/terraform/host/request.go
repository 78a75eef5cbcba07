package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// A template may run its workspace as a process of this host. What a job starts ends with the job, so the template asks
// the daemon, on a socket that only this job has, and only for the workspace that this build is of:
//
//	local-exec ──▶ coder workspace-process start --env NAME -- COMMAND   (our program, $CODER_PROVISIONER_PROGRAM)
//	                   │ <slot>/process, $CODER_PROVISIONER_SOCKET: one JSON line each way
//	                   ▼
//	                daemon ──▶ the process, in a sandbox of the workspace: see spaces
const (
	programVariable = "CODER_PROVISIONER_PROGRAM"
	socketVariable  = "CODER_PROVISIONER_SOCKET"

	maxProcessRequest = 1 << 20
	requestTimeout    = 10 * time.Second // for a request to arrive
)

// processRequest is what a job asks for.
type processRequest struct {
	Start bool              `json:"start"` // otherwise stop
	Args  []string          `json:"args,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	// Limits are less than the provisioner allows, or 0 for what it allows.
	Limits WorkspaceLimits `json:"limits,omitzero"`
}

type processAnswer struct {
	Error string `json:"error,omitempty"`
}

// parseProcessRequest reads a job's request.
func parseProcessRequest(line []byte) (processRequest, error) {
	var r processRequest
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("read request: %w", err)
	}
	if !r.Start {
		return r, nil
	}
	if len(r.Args) == 0 || r.Args[0] == "" {
		return r, errors.New("the command is missing")
	}
	for name, value := range r.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return r, fmt.Errorf("the environment variable %q cannot be set", name)
		}
	}
	for _, arg := range r.Args {
		if strings.ContainsRune(arg, 0) {
			return r, errors.New("the command holds a zero byte")
		}
	}
	return r, nil
}

// environment returns what a workspace's process sees: the requested variables, and those of its account.
func (r processRequest) environment(base map[string]string, account, home string) []string {
	env := map[string]string{"PATH": base["PATH"], "LANG": "C.UTF-8", "SHELL": "/bin/sh"}
	for _, name := range []string{"LANG", skipSystemGit} {
		if value := base[name]; value != "" {
			env[name] = value
		}
	}
	maps.Copy(env, r.Env)
	env["HOME"], env["USER"], env["LOGNAME"] = home, account, account
	return Environ(env)
}
