package health_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestProfiles checks that an owner gets profiles of the server, and that no one else does, nor a command line.
func TestProfiles(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	for _, name := range sdk.Profiles {
		var data bytes.Buffer
		if err := s.As("olga").Profile(t.Context(), name, &data); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		unpacked, err := gzip.NewReader(&data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(unpacked)
		if err != nil || name == "goroutine" && !strings.Contains(string(text), "TestProfiles") {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
		for _, user := range []string{"ann", "tom"} {
			if err := s.As(user).Profile(t.Context(), name, io.Discard); fault.CodeOf(err) != fault.Forbidden {
				t.Errorf("%s for %s: %v", name, user, err)
			}
		}
	}
	if err := s.With("").Profile(t.Context(), "heap", io.Discard); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("without a session: %v", err)
	}
	for _, name := range []string{"cmdline", "trace", "symbol", "../health", "heap?gc=1", ""} {
		if err := s.As("olga").Profile(t.Context(), name, io.Discard); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestProfileOfProcessor checks that one is recorded at a time, until the owner leaves.
func TestProfileOfProcessor(t *testing.T) { // not parallel: a process has one
	s := coderdtest.New(t)
	get := func(ctx context.Context, query string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL.String()+"/api/v2/debug/pprof/profile"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(sdk.SessionHeader, s.Token("olga"))
		return http.DefaultClient.Do(req)
	}
	for _, seconds := range []string{"0", "-1", "31", "x", "1e3"} {
		resp, err := get(t.Context(), "?seconds="+seconds)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s seconds: %s", seconds, resp.Status)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	recording, err := get(ctx, "?seconds=30") // which is answered when it has begun
	if err != nil || recording.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", recording, err)
	}
	defer recording.Body.Close()
	again := func() (int, error) {
		resp, err := get(t.Context(), "?seconds=1")
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	if status, err := again(); status != http.StatusConflict {
		t.Errorf("while another is recorded: %d, %v", status, err)
	}
	leave()
	testwait.Until(t, "the server notices that the owner has left", func() error {
		status, err := again()
		return errors.Join(err, testwait.Equal(status, http.StatusOK))
	})
	http.DefaultClient.CloseIdleConnections()
}
