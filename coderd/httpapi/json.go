package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxBody bounds a JSON body, in bytes. Files have their own route and bound.
const maxBody = 1 << 20

// Answers are encoded into reused buffers, which are kept up to maxKept bytes: a list of a thousand workspaces is 3 MB,
// and growing a buffer that far costs as much as filling it.
const maxKept = 8 << 20

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Write answers with v as JSON. It encodes v before sending anything, so that an error can still be answered.
func Write(w http.ResponseWriter, status int, v any) error {
	buf := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= maxKept {
			buf.Reset()
			buffers.Put(buf)
		}
	}()
	if err := sdk.Encode(buf, v); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, err := w.Write(buf.Bytes())
	return err
}

// retryAfter is when a client may repeat a request that failed because something was unavailable, in seconds.
const retryAfter = "2"

// writeError answers with a fault. It ignores that a client may have disconnected.
func writeError(w http.ResponseWriter, f *fault.Error) {
	body := sdk.Response{Message: f.Message, Detail: f.Detail, Reason: f.Reason, Unchanged: f.Unchanged}
	for _, field := range f.Fields {
		body.Validations = append(body.Validations, sdk.Validation{Field: field.Field, Detail: field.Detail})
	}
	switch {
	case f.RetryAfter > 0:
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
	case f.Code == fault.Unavailable && w.Header().Get("Retry-After") == "":
		w.Header().Set("Retry-After", retryAfter)
	}
	_ = Write(w, f.Code.HTTPStatus(), body)
}

// Read decodes the request's JSON body into v. Its faults name the field where that is known. Unknown fields are
// ignored: newer clients send more.
func Read(w http.ResponseWriter, r *http.Request, v any) error { return ReadUpTo(w, r, maxBody, v) }

// ReadUpTo is like Read with a different bound on the body, in bytes.
func ReadUpTo(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	data, err := body(w, r, limit)
	if err != nil {
		return err
	}
	if f := checkText(data); f != nil {
		return f
	}
	return decode(data, v)
}

// ReadAnyText is like Read, for a handler that stores nothing and checks each text itself: the text may contain a NUL.
func ReadAnyText(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := body(w, r, maxBody)
	if err != nil {
		return err
	}
	return decode(data, v)
}

func body(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if err := checkContentType(r); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return nil, bodyFault(err)
	}
	return data, nil
}

func decode(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(v); err != nil {
		return bodyFault(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "The body contains more than one JSON value.")
	}
	return nil
}

func bodyFault(err error) error {
	if f := BodyFault(err); f != nil {
		return f
	}
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		f := fault.New(fault.Invalid, "The body does not have the expected format.")
		if wrongType.Field == "" {
			return f.WithDetail("It is a JSON %s.", wrongType.Value)
		}
		return f.WithField(wrongType.Field, fmt.Sprintf("is a %s, must be a %s", wrongType.Value, wrongType.Type))
	case errors.As(err, &syntax):
		return fault.New(fault.Invalid, "The body is not JSON.").WithDetail("At byte %d: %s.", syntax.Offset, syntax)
	case errors.Is(err, io.EOF):
		return fault.New(fault.Invalid, "The request needs a JSON body.")
	default: // truncated, or refused by a type's own UnmarshalJSON
		return fault.New(fault.Invalid, "The body cannot be read.").WithDetail("%v", err)
	}
}

// PathUUID returns the id in the named segment of the route's pattern.
func PathUUID(r *http.Request, name string) (uuid.UUID, error) {
	text := r.PathValue(name)
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, fault.New(fault.Invalid, "%q is not an id.", text).WithField(name, "must be a UUID")
	}
	return id, nil
}

// QueryInt returns a number from the query: fallback if it is absent, and a fault if it is below 0 or above limit.
func QueryInt(r *http.Request, name string, fallback, limit int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > limit {
		return 0, fault.New(fault.Invalid, "The query parameter %s cannot be %q.", name, text).
			WithField(name, fmt.Sprintf("must be a number from 0 to %d", limit))
	}
	return n, nil
}

// NoAfterID refuses after_id, for logs, which are paged by offset and time. Some clients send an id of zeros to mean
// none.
func NoAfterID(r *http.Request) error {
	if text := r.URL.Query().Get("after_id"); text != "" && text != uuid.Nil.String() {
		return fault.New(fault.Invalid, "This list cannot be continued after an id.").
			WithField("after_id", "is not supported: use limit and offset")
	}
	return nil
}

// AfterID returns the id of the last row that the client has read, if the request asks for the rows after it, and nil
// if not. Some clients send an id of zeros to mean none. listed reports whether the list has, or had, a row with the id
// that the client may see; if not, AfterID returns the same fault for rows elsewhere and rows that do not exist.
func AfterID(r *http.Request, listed func(id uuid.UUID) (bool, error)) (*uuid.UUID, error) {
	text := r.URL.Query().Get("after_id")
	if text == "" || text == uuid.Nil.String() {
		return nil, nil
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return nil, fault.New(fault.Invalid, "%.64q is not an id.", text).WithField("after_id", "must be a UUID")
	}
	switch found, err := listed(id); {
	case err != nil:
		return nil, fmt.Errorf("look up after_id: %w", err)
	case !found:
		return nil, fault.New(fault.Invalid, "The list cannot be continued after %s, because it has no such entry.", id).
			WithField("after_id",
				"must be the id of an entry of this list: read it again from its start, or use limit and offset")
	}
	return &id, nil
}

// QueryBool returns a boolean from the query: present without a value means true, absent means false.
func QueryBool(r *http.Request, name string) (bool, error) {
	q := r.URL.Query()
	if text := q.Get(name); text != "" {
		b, err := strconv.ParseBool(text)
		if err != nil {
			return false, fault.New(fault.Invalid, "The query parameter %s cannot be %q.", name, text).
				WithField(name, "must be true or false")
		}
		return b, nil
	}
	return q.Has(name), nil
}
