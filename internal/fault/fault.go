// Package fault defines the only errors that users see: a code that determines the HTTP status, the RPC code and the
// exit status, and a message that tells the user what to do. Every other error is internal: its text goes to the log
// only.
package fault

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Code classifies an error.
type Code string

const (
	Invalid         Code = "invalid"
	Unauthenticated Code = "unauthenticated"
	Forbidden       Code = "forbidden"
	NotFound        Code = "not_found"
	WrongMethod     Code = "wrong_method" // HTTP only: the path exists, for other methods
	Conflict        Code = "conflict"
	TooLarge        Code = "too_large"
	RateLimited     Code = "rate_limited"
	Unavailable     Code = "unavailable"
	Internal        Code = "internal"
)

// DatabaseUnreachable is the reason of a fault for a database that does not answer, or accepts no connections. It is
// also a code of the health report.
const DatabaseUnreachable = "database_unreachable"

// Busy is the reason of a fault for a server that will have time for the request after the fault's RetryAfter.
const Busy = "server_busy"

// Field names one rejected input.
type Field struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Error is an error for users.
type Error struct {
	Code    Code
	Message string  // one sentence: what happened
	Detail  string  // optional: the circumstances or the remedy
	Fields  []Field // optional: the rejected inputs
	Cause   error   // optional: for the log

	Reason string // optional: what programs decide by, such as DatabaseUnreachable
	// the request was refused before it could change anything, so that it may be repeated, whatever its method
	Unchanged bool

	RetryAfter time.Duration // optional: how long to wait before the request is repeated
}

// New returns an error with a formatted message. A %w verb sets the cause.
func New(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Cause: errors.Unwrap(err)}
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Message
	}
	if strings.HasSuffix(e.Message, ".") {
		return e.Message + " " + e.Detail
	}
	return e.Message + ": " + e.Detail
}

func (e *Error) Unwrap() error { return e.Cause }

// WithDetail sets the detail and returns e.
func (e *Error) WithDetail(format string, args ...any) *Error {
	e.Detail = fmt.Sprintf(format, args...)
	return e
}

// WithField adds a rejected input and returns e.
func (e *Error) WithField(field, detail string) *Error {
	e.Fields = append(e.Fields, Field{field, detail})
	return e
}

// As returns the fault in err's chain, or nil.
func As(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return nil
}

// CodeOf returns the code of the fault in err's chain, Internal if there is none, or "" if err is nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e := As(err); e != nil {
		return e.Code
	}
	return Internal
}

// HTTPStatus returns the HTTP status for a code.
func (c Code) HTTPStatus() int {
	switch c {
	case Invalid:
		return http.StatusBadRequest
	case Unauthenticated:
		return http.StatusUnauthorized
	case Forbidden:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case WrongMethod:
		return http.StatusMethodNotAllowed
	case Conflict:
		return http.StatusConflict
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case RateLimited:
		return http.StatusTooManyRequests
	case Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// FromHTTPStatus returns the code for an HTTP status.
func FromHTTPStatus(status int) Code {
	for _, c := range []Code{Invalid, Unauthenticated, Forbidden, NotFound, WrongMethod, Conflict, TooLarge,
		RateLimited, Unavailable} {
		if c.HTTPStatus() == status {
			return c
		}
	}
	if status >= 400 && status < 500 {
		return Invalid
	}
	return Internal
}
