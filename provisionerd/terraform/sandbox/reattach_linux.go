package sandbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Watching returns env with pid as the process of every attached provider. Each second Terraform sends that process the
// signal 0, and cancels all requests to the provider once this fails. It always fails for the provider worker, which
// has no number in the job's namespaces and lies outside of the job's Landlock domain. So Terraform gets a process that
// it may signal and that lives as long as Terraform does; the end of a worker closes its connections, which is enough.
func Watching(env []string, pid int) ([]string, error) {
	at := slices.IndexFunc(env, func(line string) bool { return strings.HasPrefix(line, ReattachVariable+"=") })
	if at < 0 {
		return env, nil
	}
	var providers map[string]attached
	if err := json.Unmarshal([]byte(env[at][len(ReattachVariable)+1:]), &providers); err != nil {
		return nil, fmt.Errorf("decode attached providers: %w", err)
	}
	for name, provider := range providers {
		provider.Pid = pid
		providers[name] = provider
	}
	text, err := json.Marshal(providers)
	if err != nil {
		return nil, fmt.Errorf("encode attached providers: %w", err)
	}
	env = slices.Clone(env)
	env[at] = ReattachVariable + "=" + string(text)
	return env, nil
}

// attached is how Terraform reaches a provider: tfexec.ReattachConfig, whose package is too large for the program that
// runs in sandboxes.
type attached struct {
	Protocol        string
	ProtocolVersion int
	Pid             int
	Test            bool
	Addr            struct{ Network, String string }
}
