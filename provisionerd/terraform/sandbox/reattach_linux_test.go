package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func TestWatching(t *testing.T) {
	t.Parallel()
	env := []string{"A=1", ReattachVariable + `={"coder/coder":{"Protocol":"grpc","ProtocolVersion":5,"Pid":0,"Test":true,"Addr":{"Network":"unix","String":"/x"}}}`}
	before := slices.Clone(env)
	got, err := Watching(env, 7)
	want := []string{"A=1", strings.Replace(env[1], `"Pid":0`, `"Pid":7`, 1)}
	if err != nil || !slices.Equal(got, want) || !slices.Equal(env, before) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if got, err := Watching(env[:1], 7); err != nil || !slices.Equal(got, env[:1]) {
		t.Errorf("without providers: %q, %v", got, err)
	}
	if _, err := Watching([]string{ReattachVariable + "={"}, 7); err == nil {
		t.Error("half an object was taken")
	}
}
