package httpapi

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Creation declares how a route that creates something answers a request that is repeated with its key.
type Creation struct {
	// Reads is the path of the route that reads what was created, below /api/v2/, with {created} for its id. Other
	// wildcards are those of the route that creates.
	Reads string
	// Secret says what the answer showed that cannot be read again, such as "The token". The repetition is then
	// refused.
	Secret string
}

// Creates declares that a route creates what the path reads, and that a request that is repeated with its
// Idempotency-Key creates nothing again: the repetition gets what a request for the path would get, with status 201.
// The handler needs nothing for that, as long as it makes its row in the audit log in the transaction of the creation.
func Creates(reads string) RouteOption { return func(r *Route) { r.Creation = Creation{Reads: reads} } }

// CreatesSecret is Creates for a route whose answer shows what is stored as a hash only.
func CreatesSecret(what string) RouteOption {
	return func(r *Route) { r.Creation = Creation{Secret: what} }
}

// Used is what a key was used for.
type Used struct {
	Request [sha256.Size]byte // see Key.Sum
	Created uuid.UUID
}

// Keys returns what a user's key was used for, or nil if it is new.
type Keys func(ctx context.Context, user uuid.UUID, key [sha256.Size]byte) (*Used, error)

// Key is the Idempotency-Key of the request that is being served.
type Key struct {
	Hash    [sha256.Size]byte
	Request uuid.UUID // of this attempt
	body    *summed
}

type keyKey struct{}

// KeyOf returns the key of the request with this context, or nil if it has none or its route creates nothing.
func KeyOf(ctx context.Context) *Key {
	key, _ := ctx.Value(keyKey{}).(*Key)
	return key
}

// Sum is an HMAC of the request's method, path, query and body with the key, for a handler that has read the body. It
// does not read what is left of it: a transaction must not wait for the client.
func (k *Key) Sum() ([sha256.Size]byte, error) {
	if !k.body.ended {
		return [sha256.Size]byte{}, fault.New(fault.Invalid, "The request's body is not what this route reads.").
			WithDetail("Send no body, or no Idempotency-Key.")
	}
	return [sha256.Size]byte(k.body.hash.Sum(nil)), nil
}

// KeyUsed is the error of a creation whose key another request has used meanwhile.
func KeyUsed() error {
	return fault.New(fault.Conflict, "Another request has used this Idempotency-Key.").
		WithDetail("Send each request with a key of its own.")
}

// summed is a request's body that is hashed while it is read.
type summed struct {
	io.ReadCloser
	hash  hash.Hash
	ended bool // it was read to its end
}

func (b *summed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.hash.Write(p[:n])
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

// readAhead reads a body of a usual size before the handler does, so that it is complete also if the handler does not
// read it.
func (b *summed) readAhead(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength < 0 || r.ContentLength > maxBody {
		return nil
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, b, maxBody))
	if err != nil {
		return bodyFault(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	return nil
}

// drain reads what is left of the body.
func (b *summed) drain(r *http.Request) error {
	AllowUpload(r)
	if _, err := io.Copy(io.Discard, b); err != nil {
		return bodyFault(err)
	}
	return nil
}

// parseKey returns the key that the values of the header contain, or "" if there are none.
func parseKey(values []string) (string, error) {
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	visible := strings.IndexFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
	if len(values) > 1 || len(key) < sdk.MinKey || len(key) > sdk.MaxKey || !visible {
		return "", fault.New(fault.Invalid, "The Idempotency-Key cannot be used.").
			WithDetail("Send one key of %d to %d visible ASCII characters, such as a UUID.", sdk.MinKey, sdk.MaxKey)
	}
	return key, nil
}

// newKey returns the key of a request, which hashes the request's body from now on. It is nil if the request has none.
func newKey(r *http.Request) (*Key, error) {
	text, err := parseKey(r.Header.Values(sdk.KeyHeader))
	if err != nil || text == "" {
		return nil, err
	}
	// A body may contain a password, so its hash must not help to guess it: only the client knows the key.
	body := &summed{ReadCloser: r.Body, hash: hmac.New(sha256.New, []byte(text))}
	if r.Body == nil {
		body.ReadCloser = http.NoBody
	}
	fmt.Fprintf(body.hash, "%s %s?%s\n", r.Method, r.URL.EscapedPath(), r.URL.RawQuery)
	return &Key{Hash: sha256.Sum256([]byte(text)), Request: uuid.New(), body: body}, nil
}

// create serves a request to a route. If the route creates something and the request has a key, that happens once for
// each key of a user.
func (m *Mux) create(w http.ResponseWriter, r *http.Request, route Route, h HandlerFunc) error {
	res, ok := w.(*response)
	if route.Creation == (Creation{}) || m.keys == nil || !ok {
		return h(w, r)
	}
	key, err := newKey(r)
	if err != nil {
		return err
	}
	if key == nil {
		return h(w, r)
	}
	r = r.WithContext(context.WithValue(r.Context(), keyKey{}, key))
	r.Body = key.body
	if err := key.body.readAhead(w, r); err != nil {
		return err
	}
	used, err := m.keys(r.Context(), ActorFrom(r.Context()).UserID, key.Hash)
	if err != nil {
		return err
	}
	if used != nil {
		return m.repeat(res, r, route, key, used)
	}
	failed := h(w, r)
	if failed == nil || res.started() {
		return failed
	}
	// The same request may have succeeded meanwhile; or this one did, and the answer to its commit was lost.
	if used, err = m.keys(r.Context(), ActorFrom(r.Context()).UserID, key.Hash); err != nil || used == nil {
		return failed
	}
	return m.repeat(res, r, route, key, used)
}

// repeat answers a request whose key was used.
func (m *Mux) repeat(w *response, r *http.Request, route Route, key *Key, used *Used) error {
	w.begins = nil // it changes nothing, so it leaves nothing in the audit log
	if err := key.body.drain(r); err != nil {
		return err
	}
	sum, err := key.Sum()
	if err != nil {
		return err
	}
	switch {
	case sum != used.Request:
		return Write(w, http.StatusUnprocessableEntity, sdk.Response{
			Message: "This Idempotency-Key belongs to another request.",
			Detail:  "Send each request with a key of its own, and repeat it unchanged.",
		})
	case route.Creation.Secret != "":
		return fault.New(fault.Conflict, "%s was created by this request before, and is shown only once.", route.Creation.Secret).
			WithDetail("If you did not get it, delete it and create another.")
	}
	path := strings.ReplaceAll(route.Creation.Reads, "{created}", used.Created.String())
	for _, name := range wildcards(path) {
		path = strings.ReplaceAll(path, "{"+name+"}", r.PathValue(name))
	}
	read := r.Clone(context.WithValue(r.Context(), keyKey{}, (*Key)(nil)))
	read.Method, read.Body, read.ContentLength = http.MethodGet, http.NoBody, 0
	read.URL = &url.URL{Path: "/api/v2/" + path, RawQuery: r.URL.RawQuery} // the query may contain the session
	w.created = true
	w.Header().Set("Idempotency-Replayed", "true")
	m.mux.ServeHTTP(w, read)
	return nil
}
