package httpapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// FuzzKey checks that no header yields a key that is not a bounded text of visible ASCII characters.
func FuzzKey(f *testing.F) {
	for _, text := range []string{
		"", "short", "8e03978e-40d5-43dd-bc93-6894a57f9324", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`, strings.Repeat("k", sdk.MinKey), strings.Repeat("k", sdk.MaxKey),
		strings.Repeat("k", sdk.MaxKey+1), strings.Repeat("k", 20) + " ", strings.Repeat("k", 20) + "\x00", strings.Repeat("k", 20) + "\u00e9", strings.Repeat("k", 20) + "\xff",
	} {
		f.Add(text, "")
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		values := []string{first}
		if second != "" {
			values = append(values, second)
		}
		key, err := parseKey(values)
		if err != nil {
			if key != "" || fault.CodeOf(err) != fault.Invalid {
				t.Fatalf("%q: %q, %v", values, key, err)
			}
			return
		}
		if key != first || second != "" || len(key) < 16 || len(key) > 255 {
			t.Fatalf("%q: %q", values, key)
		}
		for i := range len(key) {
			if key[i] <= ' ' || key[i] > '~' {
				t.Fatalf("%q has the byte %#x", key, key[i])
			}
		}
	})
}

// TestUploadWithKey checks that a body that is hashed for a key may take as much time as any other upload.
func TestUploadWithKey(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("POST", "/", strings.NewReader("state"))
	bounded := &boundBody{ReadCloser: r.Body, control: http.NewResponseController(httptest.NewRecorder()), timeout: BodyTimeout}
	r.Body = bounded
	r.Header.Set(sdk.KeyHeader, strings.Repeat("k", 20))
	key, err := newKey(r)
	if err != nil || key == nil {
		t.Fatal(key, err)
	}
	r.Body = key.body
	if bodyOf(r) != bounded {
		t.Error("the body's deadline is not found behind its hash")
	}
	if _, err := key.Sum(); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("the sum of a body that was not read: %v, want a refusal", err)
	}
	if _, err := io.ReadAll(r.Body); err != nil {
		t.Fatal(err)
	}
	if _, err := key.Sum(); err != nil {
		t.Errorf("the sum of a body that was read: %v", err)
	}
}
