package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

// maxKeyedBody bounds the body of a repeated request, in bytes, which is read only to compare it with the first one.
const maxKeyedBody = 64 << 20

// Creation declares how a route that creates something answers a request that is repeated with its key.
type Creation struct {
	// Reads is the path of the route that reads what was created, below /api/v2/, with {created} for its id. Other wildcards are those of
	// the route that creates.
	Reads string
	// Secret says what the answer showed that cannot be read again, such as "The token". The repetition is then refused.
	Secret string
}

// Creates declares that a route creates what the path reads, and that a request that is repeated with its Idempotency-Key creates nothing again:
// the repetition gets what a request for the path would get, with status 201. The handler needs nothing for that, as long as
// it makes its row in the audit log in the transaction of the creation.
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

// Sum is an HMAC of the request's method, path and body with the key. It reads what the handler has not read of the body.
func (k *Key) Sum() ([sha256.Size]byte, error) { return k.body.sum() }

// KeyUsed is the error of a creation whose key another request has used meanwhile.
func KeyUsed() error {
	return fault.New(fault.Conflict, "Another request has used this Idempotency-Key.").WithDetail("Send each request with a key of its own.")
}

// summed is a request's body that is hashed while it is read.
type summed struct {
	io.ReadCloser
	hash hash.Hash
	read int64
}

func (b *summed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.hash.Write(p[:n])
	b.read += int64(n)
	return n, err
}

func (b *summed) sum() (sum [sha256.Size]byte, err error) {
	if _, err := io.Copy(io.Discard, io.LimitReader(b, maxKeyedBody-b.read)); err != nil {
		return sum, bodyFault(err)
	}
	b.hash.Sum(sum[:0])
	return sum, nil
}

// newKey returns the key of a request. It is nil if the request has none.
func newKey(r *http.Request) (*Key, error) {
	values := r.Header.Values(sdk.KeyHeader)
	if len(values) == 0 {
		return nil, nil
	}
	text := values[0]
	visible := strings.IndexFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) < 0
	if len(values) > 1 || len(text) < sdk.MinKey || len(text) > sdk.MaxKey || !visible {
		return nil, fault.New(fault.Invalid, "The Idempotency-Key cannot be used.").
			WithDetail("There must be one, of %d to %d visible ASCII characters.", sdk.MinKey, sdk.MaxKey)
	}
	// A body may contain a password, so its hash must not help to guess it: only the client knows the key.
	body := &summed{ReadCloser: r.Body, hash: hmac.New(sha256.New, []byte(text))}
	fmt.Fprintf(body.hash, "%s %s\n", r.Method, r.URL.EscapedPath())
	return &Key{Hash: sha256.Sum256([]byte(text)), Request: uuid.New(), body: body}, nil
}

// create serves a request to a route. If the route creates something and the request has a key, that happens once for each key of a user.
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
	if done, err := m.repeat(res, r, route, key); done {
		return err
	}
	failed := h(w, r)
	if failed == nil || res.started() {
		return failed
	}
	// The same request may have succeeded meanwhile; or this one did, and the answer to its commit was lost.
	if done, err := m.repeat(res, r, route, key); done && err == nil {
		return nil
	}
	return failed
}

// repeat answers a request whose key was used. done is false if it was not.
func (m *Mux) repeat(w *response, r *http.Request, route Route, key *Key) (done bool, err error) {
	used, err := m.keys(r.Context(), ActorFrom(r.Context()).UserID, key.Hash)
	if err != nil || used == nil {
		return err != nil, err
	}
	sum, err := key.Sum()
	if err != nil {
		return true, err
	}
	w.begins = nil // it changes nothing, so it leaves nothing in the audit log
	switch {
	case sum != used.Request:
		return true, Write(w, http.StatusUnprocessableEntity, sdk.Response{
			Message: "This Idempotency-Key belongs to another request.", Detail: "Send each request with a key of its own, and repeat it unchanged.",
		})
	case route.Creation.Secret != "":
		return true, fault.New(fault.Conflict, "%s was created by this request before, and is shown only once.", route.Creation.Secret).
			WithDetail("If you did not get it, delete it and create another.")
	}
	path := strings.ReplaceAll(route.Creation.Reads, "{created}", used.Created.String())
	for _, name := range wildcards(path) {
		path = strings.ReplaceAll(path, "{"+name+"}", r.PathValue(name))
	}
	read := r.Clone(context.WithValue(r.Context(), keyKey{}, (*Key)(nil)))
	read.Method, read.URL, read.Body, read.ContentLength = http.MethodGet, &url.URL{Path: "/api/v2/" + path}, http.NoBody, 0
	w.created = true
	w.Header().Set("Idempotency-Replayed", "true")
	m.mux.ServeHTTP(w, read)
	return true, nil
}
