package webhook

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestDial checks that a connection to a refused address is not begun, whatever the name was by which it was found.
func TestDial(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	t.Cleanup(receiver.Close)
	c := NewClient(NewGuard(nil))
	t.Cleanup(c.Close)
	resp, err := c.direct.Get(receiver.URL) // as if a name had led there: Post refuses the address before
	if err == nil {
		resp.Body.Close()
	}
	if !errors.Is(err, ErrForbidden) {
		t.Errorf("got %v", err)
	}
	for _, address := range []string{"127.0.0.1:80", "[fe80::1%eth0]:80", "[::]:80", "x"} {
		if c.guard.control("tcp", address, nil) == nil {
			t.Errorf("%s is let pass", address)
		}
	}
}
