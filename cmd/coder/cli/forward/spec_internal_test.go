package forward

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseForwards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tcp, udp []string
		want     string // network local>remote …
	}{
		{[]string{"8080"}, nil, "tcp 127.0.0.1:8080>8080"},
		{[]string{"8080:80"}, nil, "tcp 127.0.0.1:8080>80"},
		{[]string{"0.0.0.0:8080:80"}, nil, "tcp 0.0.0.0:8080>80"},
		{[]string{"10.0.0.1:8080"}, nil, "tcp 10.0.0.1:8080>8080"},
		{[]string{"localhost:8080:80"}, nil, "tcp 127.0.0.1:8080>80"},
		{[]string{"[::1]:8080:80"}, nil, "tcp [::1]:8080>80"},
		{[]string{"9000-9002"}, nil, "tcp 127.0.0.1:9000>9000 tcp 127.0.0.1:9001>9001 tcp 127.0.0.1:9002>9002"},
		{[]string{"9000-9001:80-81, 7"}, nil, "tcp 127.0.0.1:9000>80 tcp 127.0.0.1:9001>81 tcp 127.0.0.1:7>7"},
		{[]string{"53"}, []string{"53"}, "tcp 127.0.0.1:53>53 udp 127.0.0.1:53>53"},
		{[]string{"65535"}, nil, "tcp 127.0.0.1:65535>65535"},
	} {
		got, err := Parse(tt.tcp, tt.udp)
		if err != nil {
			t.Errorf("%q %q: %v", tt.tcp, tt.udp, err)
		}
		if diff := cmp.Diff(tt.want, forwardText(got)); diff != "" {
			t.Errorf("%q %q (-want +got):\n%s", tt.tcp, tt.udp, diff)
		}
	}
	for _, spec := range []string{"", "x", "0", "65536", "-1", "1-", "5-3", "1-5:1-4", "1:2:3:4", "[::1]8080", "[nope]:1:2", "1,1", "1-60000", "a:1:2"} {
		if got, err := Parse([]string{spec}, nil); err == nil {
			t.Errorf("%q: got %s, want an error", spec, forwardText(got))
		}
	}
	if _, err := Parse(nil, nil); err == nil {
		t.Error("no ports: want an error")
	}
}

func forwardText(forwards []Port) string {
	var words []string
	for _, f := range forwards {
		words = append(words, fmt.Sprintf("%s %s>%d", f.Network, f.Local, f.Remote))
	}
	return strings.Join(words, " ")
}

func FuzzParseForward(f *testing.F) {
	for _, seed := range []string{"8080", "8080:80", "0.0.0.0:1:2", "[::1]:1-3:4-6", "1-65535:1-65535", "::", "[", "1:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		forwards, err := parseForward("tcp", spec)
		if err != nil {
			return
		}
		if len(forwards) == 0 || len(forwards) > maxForwards {
			t.Fatalf("%q: %d forwards", spec, len(forwards))
		}
		for i, fw := range forwards {
			if fw.Remote == 0 || fw.Local.Port() == 0 || !fw.Local.IsValid() {
				t.Fatalf("%q: forward %d is %+v", spec, i, fw)
			}
			if int(fw.Local.Port())-int(forwards[0].Local.Port()) != i || int(fw.Remote)-int(forwards[0].Remote) != i {
				t.Fatalf("%q: forward %d is %+v after %+v", spec, i, fw, forwards[0])
			}
		}
	})
}

func TestParseRemoteForward(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]Remote{
		"8080:localhost:80":         {"tcp", "127.0.0.1:8080", "tcp", "localhost:80"},
		"0.0.0.0:8080:10.0.0.1:80":  {"tcp", "0.0.0.0:8080", "tcp", "10.0.0.1:80"},
		"[::1]:8080:[fd00::1]:80":   {"tcp", "[::1]:8080", "tcp", "[fd00::1]:80"},
		"/tmp/remote.sock:/tmp/l.s": {"unix", "/tmp/remote.sock", "unix", "/tmp/l.s"},
	} {
		got, err := ParseRemote(spec)
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", spec, got, err, want)
		}
	}
	for _, spec := range []string{"", "80", "80:80", "a:b:c", "80::80", "/x", "/x:y", "1:2:3:4:5", "0:h:1", "1:h:0"} {
		if got, err := ParseRemote(spec); err == nil {
			t.Errorf("%q: got %+v, want an error", spec, got)
		}
	}
}
