package archive_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/archive"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers on a socket, one connection after the other.
func serve(t *testing.T, answer func(net.Conn)) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return path
}

func TestFetch(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", 40<<10)
	path := serve(t, func(conn net.Conn) {
		_ = archive.Serve(t.Context(), conn, func(_ context.Context, name string) (io.ReadCloser, int64, error) {
			switch name {
			case "large":
				return io.NopCloser(strings.NewReader(large)), int64(len(large)), nil
			case "empty":
				return io.NopCloser(strings.NewReader("")), 0, nil
			case "longer":
				return io.NopCloser(strings.NewReader("too much")), 3, nil
			case "cut":
				return io.NopCloser(io.MultiReader(strings.NewReader("ha"), iotest.ErrReader(errors.New("gone")))), 4, nil
			case "busy":
				return nil, 0, errors.New("try again")
			}
			return nil, 0, archive.Refusal("there is no " + name)
		})
	})
	for name, want := range map[string]string{"large": large, "empty": "", "longer": "too"} {
		content, size, err := archive.Fetch(t.Context(), path, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := io.ReadAll(content)
		if err != nil || string(got) != want || size != int64(len(want)) {
			t.Errorf("%s: %d bytes, size %d, %v; want %d", name, len(got), size, err, len(want))
		}
		content.Close()
	}
	content, _, err := archive.Fetch(t.Context(), path, "cut")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(content); !errors.Is(err, io.ErrUnexpectedEOF) || string(got) != "ha" {
		t.Errorf("a broken archive: %q, %v", got, err)
	}
	content.Close()
	_, _, err = archive.Fetch(t.Context(), path, "x")
	if refusal, ok := errors.AsType[archive.Refusal](err); !ok || refusal != "there is no x" {
		t.Errorf("refused: %v", err)
	}
	_, _, err = archive.Fetch(t.Context(), path, "busy")
	if _, ok := errors.AsType[archive.Refusal](err); ok || err == nil || err.Error() != "try again" {
		t.Errorf("busy: %v", err)
	}
	if _, _, err := archive.Fetch(t.Context(), path+"x", "large"); err == nil {
		t.Error("an archive without an agent")
	}
}

// TestFetchFromAnotherProgram checks that what is no agent's answer is an error.
func TestFetchFromAnotherProgram(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "hello\n", strings.Repeat("x", 10<<10), `{"size":-1}` + "\n"} {
		path := serve(t, func(conn net.Conn) { _, _ = io.WriteString(conn, text) })
		if content, _, err := archive.Fetch(t.Context(), path, "a"); err == nil {
			content.Close()
			t.Errorf("%.20q is an archive", text)
		}
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	path := serve(t, func(net.Conn) { close(asked); <-release })
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, _, err := archive.Fetch(ctx, path, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
