package devcontainer

import (
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzAnswers checks that whatever the programs print, nothing of it becomes an option, and errors are one short line.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"outcome":"success","containerId":"c0ffee","remoteUser":"dev","remoteWorkspaceFolder":"/workspaces/app"}`))
	f.Add([]byte("log\n" + `{"outcome":"error","message":"a\nb"}` + "\n"))
	f.Add([]byte(`[{"Id":"c0ffee","Name":"/a","State":{"Running":true},"Config":{"Image":"box"}}]`))
	f.Fuzz(func(t *testing.T, output []byte) {
		check := func(c Container, err error) {
			if err != nil {
				if text := err.Error(); strings.Contains(text, "\n") || !utf8.ValidString(text) || len(text) > 4*maxProblem {
					t.Errorf("error %q", text)
				}
				return
			}
			if !isID(c.ID) || strings.HasPrefix(c.User, "-") || c.Directory != "" && !path.IsAbs(c.Directory) {
				t.Errorf("container %+v", c)
			}
		}
		check(parseUp(output))
		check(parseInspect(output))
	})
}
