package result

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestMergeEnv checks how coder_env resources join: with each other, with coder_agent's env, and with what the machine sets.
func TestMergeEnv(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		agent map[string]string
		envs  []agentEnv
		want  map[string]string
	}{
		"append":                  {nil, []agentEnv{{"", "PATH", "/a", "append"}}, map[string]string{"PATH": "${PATH}:/a"}},
		"prepend":                 {nil, []agentEnv{{"", "PATH", "/a", "prepend"}}, map[string]string{"PATH": "/a:${PATH}"}},
		"both":                    {nil, []agentEnv{{"", "P", "/a", "append"}, {"", "P", "/b", "prepend"}, {"", "P", "/c", "append"}}, map[string]string{"P": "/b:${P}:/a:/c"}},
		"names it":                {nil, []agentEnv{{"", "P", "$P:/a", "append"}, {"", "P", "/b", "append"}}, map[string]string{"P": "$P:/a:/b"}},
		"names it later":          {nil, []agentEnv{{"", "P", "/a", "append"}, {"", "P", "/b:${P}", "append"}}, map[string]string{"P": "/a:/b:${P}"}},
		"names another":           {nil, []agentEnv{{"", "P", "$PATH:/a", "append"}}, map[string]string{"P": "${P}:$PATH:/a"}},
		"agent sets it":           {map[string]string{"P": "/x"}, []agentEnv{{"", "P", "/a", "append"}}, map[string]string{"P": "/x:/a"}},
		"agent empties it":        {map[string]string{"P": ""}, []agentEnv{{"", "P", "/a", "append"}}, map[string]string{"P": "/a"}},
		"replaced first":          {nil, []agentEnv{{"", "P", "/x", "replace"}, {"", "P", "/a", "prepend"}}, map[string]string{"P": "/a:/x"}},
		"replaced last":           {nil, []agentEnv{{"", "P", "/a", "append"}, {"", "P", "/x", "replace"}}, map[string]string{"P": "/x"}},
		"replaced by a reference": {nil, []agentEnv{{"", "P", "/a", "append"}, {"", "P", "$P", "replace"}}, map[string]string{"P": "$P"}},
		"empty":                   {nil, []agentEnv{{"", "P", "", "append"}, {"", "Q", "/a", "append"}, {"", "Q", "", "prepend"}}, map[string]string{"Q": "${Q}:/a"}},
	} {
		a := &provisionerpb.Agent{Name: "main", Env: tt.agent}
		if err := mergeEnv(a, tt.envs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, a.Env); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	a := &provisionerpb.Agent{Name: "main", Os: "windows"}
	if err := mergeEnv(a, []agentEnv{{"", "PATH", `C:\a`, "append"}, {"", "PATH", `C:\b`, "prepend"}}); err != nil || a.Env["PATH"] != `C:\b;${PATH};C:\a` {
		t.Errorf("on Windows: %q, %v", a.Env["PATH"], err)
	}
}
