//go:build linux

package agent

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/proc"
)

func TestSecretVariables(t *testing.T) {
	t.Parallel()
	env := proc.NewEnv([]string{"PATH=/bin", "TOKEN=template's", "HOME=/home/ann"})
	setSecrets(env, []*agentpb.Secret{
		{EnvName: "TOKEN", Value: []byte("pa$HOME${PATH}$$")}, {EnvName: "PATH", Value: []byte("/evil")}, {EnvName: "CODER_X", Value: []byte("x")},
		{EnvName: "LD_PRELOAD", Value: []byte("x")}, {EnvName: "A=B", Value: []byte("x")}, {EnvName: "NUL", Value: []byte("a\x00b")}, {Value: []byte("x")},
	})
	if got, want := strings.Join(env.List(), " "), "PATH=/bin TOKEN=pa$HOME${PATH}$$ HOME=/home/ann"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
