package health

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/signed"
)

// FuzzDecodeAnswer checks that only the answer to the question passes.
func FuzzDecodeAnswer(f *testing.F) {
	signer, err := signed.New([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		f.Fatal(err)
	}
	s := &Service{opts: Options{Signer: signer}}
	q := question{uuid.UUID{1}, uuid.UUID{2}, "nonce"}
	good, err := s.encodeAnswer(selfReport{Version: "v1"}, q)
	if err != nil {
		f.Fatal(err)
	}
	for _, edit := range []func(*answered){func(*answered) {}, func(a *answered) { a.Report += " " }, func(a *answered) { a.Proof = "" }} {
		a := good
		edit(&a)
		data, err := json.Marshal(a)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		report, err := s.decodeAnswer(data, q)
		if err == nil && report.Version != "v1" {
			t.Errorf("%s is accepted as %+v", data, report)
		}
		if _, err := s.decodeAnswer(data, question{q.From, q.To, "another"}); err == nil {
			t.Errorf("%s answers another question", data)
		}
	})
}

func TestDecodeAnswer(t *testing.T) {
	t.Parallel()
	signer, err := signed.New([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{opts: Options{Signer: signer}}
	q := question{uuid.UUID{1}, uuid.UUID{2}, "nonce"}
	answer, err := s.encodeAnswer(selfReport{Version: "v1"}, q)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	if report, err := s.decodeAnswer(data, q); err != nil || report.Version != "v1" {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestCause(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"dial tcp: connection refused": "connection refused", "timeout": "timeout"} {
		if got := cause(errors.New(text)); got != want {
			t.Errorf("cause of %q is %q, want %q", text, got, want)
		}
	}
}
