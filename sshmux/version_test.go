package sshmux_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/codermesh/codermesh/v2/sshmux"
)

// TestSendAfterVersion checks that what is sent after the other end has shown another version fails with that reason,
// and not with that of the write to a stream that this end has closed.
func TestSendAfterVersion(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	c := sshmux.New(near, sshmux.Options{})
	defer c.Close()
	if _, err := io.WriteString(far, "SMX\x7f"); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if _, _, err := c.SendRequest("keepalive", false, nil); !errors.Is(err, sshmux.ErrVersion) {
		t.Errorf("sent afterwards: got %v, want %v", err, sshmux.ErrVersion)
	}
	if _, err := c.Open("session", nil); !errors.Is(err, sshmux.ErrVersion) {
		t.Errorf("opened afterwards: got %v, want %v", err, sshmux.ErrVersion)
	}
}
