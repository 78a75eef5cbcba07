package speed_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/speed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t *testing.T) (client net.Conn, served <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	done := make(chan error, 1)
	go func() { done <- speed.Serve(server) }()
	return client, done
}

func TestBothDirections(t *testing.T) {
	t.Parallel()
	for _, direction := range []speed.Direction{speed.Down, speed.Up} {
		t.Run(string(direction), func(t *testing.T) {
			t.Parallel()
			client, served := pair(t)
			calls := 0
			got, err := speed.Run(t.Context(), client, speed.Request{Direction: direction, Seconds: 1.2}, func(speed.Result) { calls++ })
			if err != nil || got.Bytes == 0 || got.Seconds <= 0 || got.Mbit() <= 0 || calls == 0 {
				t.Errorf("run: %+v, %v, %d reports of progress", got, err, calls)
			}
			if err := <-served; err != nil {
				t.Errorf("serve: %v", err)
			}
		})
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"no json": "GET / HTTP/1.1\r\n", "direction": `{"direction":"sideways","seconds":1}` + "\n", "too long": `{"direction":"up","seconds":61}` + "\n",
		"no time": `{"direction":"up"}` + "\n", "endless": strings.Repeat("x", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, served := pair(t)
			if _, err := io.WriteString(client, line); err != nil {
				t.Fatal(err)
			}
			if err := <-served; err == nil {
				t.Error("served, want an error")
			}
		})
	}
}

func TestEndOfContext(t *testing.T) {
	t.Parallel()
	client, served := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := speed.Run(ctx, client, speed.Request{Direction: speed.Down, Seconds: 60}, func(speed.Result) { cancel() })
	if err == nil {
		t.Error("run outlived its context")
	}
	if err := <-served; err == nil {
		t.Error("serve did not notice that the client is gone")
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"direction":"down","seconds":5}`))
	f.Add([]byte(`{"direction":"up","seconds":1e400}`))
	f.Add([]byte(`{"seconds":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		req, err := speed.ParseRequest(line)
		if err != nil {
			return
		}
		if !(req.Seconds > 0 && req.Seconds <= speed.MaxSeconds) || (req.Direction != speed.Down && req.Direction != speed.Up) {
			t.Errorf("accepted %q as %+v", line, req)
		}
	})
}
