package database

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// PostgreSQL's error codes that the server handles (appendix A of its manual).
const (
	codeUniqueViolation     = "23505"
	codeForeignKeyViolation = "23503"
	codeSerialization       = "40001"
	codeDeadlock            = "40P01"
	codeDiskFull            = "53100"
	codeQueryCanceled       = "57014"
	codeLockNotAvailable    = "55P03"
	codeReadOnly            = "25006"
	codeIdleInTransaction   = "25P03"
	codeInternal            = "XX000"
)

// codeOlderServer is the error of the schema's function require_program: the server at the URL in the message needs
// what a migration removes.
const codeOlderServer = "CM001"

// IsNotFound reports whether a query for one row found none.
func IsNotFound(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// IsUniqueViolation reports whether err means that a conflicting row exists, by the named constraint or unique index,
// or by any if constraint is "".
func IsUniqueViolation(err error, constraint string) bool {
	return violates(err, codeUniqueViolation, constraint)
}

// IsForeignKeyViolation is the same for a row that is missing, or that is still referenced.
func IsForeignKeyViolation(err error, constraint string) bool {
	return violates(err, codeForeignKeyViolation, constraint)
}

func violates(err error, code, constraint string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == code && (constraint == "" || pg.ConstraintName == constraint)
}

// IsUnavailable reports whether err means that the database is unreachable, overloaded or out of space.
func IsUnavailable(err error) bool {
	return fault.CodeOf(translate(context.Background(), err)) == fault.Unavailable
}

// passing reports whether an error from PostgreSQL may be temporary, so that the same request may succeed later.
func passing(code string) bool {
	switch {
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "53"), strings.HasPrefix(code, "57P"), strings.HasPrefix(code, "58"):
		return true
	}
	return slices.Contains([]string{codeLockNotAvailable, codeReadOnly, codeIdleInTransaction, codeQueryCanceled}, code)
}

// translate converts an error that means "the database cannot serve now" to a fault, and returns all others unchanged.
func translate(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || fault.As(err) != nil {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case diskFull(pg):
			return unavailable(err, "The database's disk is full.", "Free some space where PostgreSQL keeps its data.")
		case pg.Code == codeQueryCanceled || pg.Code == codeLockNotAvailable:
			return unavailable(err, "The database took too long.", "It may be overloaded. Try again.")
		case pg.Code == codeReadOnly:
			return unavailable(err, "The database is read-only.", "The server may be connected to a standby.")
		case passing(pg.Code):
			return unreachable(err, "The database cannot accept connections now.",
				"It may be restarting. Try again in a moment.")
		}
		return err
	}
	if lost(err) {
		return unreachable(err, "The database is not reachable.",
			"Try again in a moment. If the problem persists, check the server's log.")
	}
	return err
}

// diskFull reports whether PostgreSQL has no space. A new connection stores a cache of the system tables if there is
// none, such as after vacuum, and is refused if that does not fit: with an internal error, and no reason (write_item in
// PostgreSQL's relcache.c).
func diskFull(err *pgconn.PgError) bool {
	return err.Code == codeDiskFull || strings.Contains(err.Message, syscall.ENOSPC.Error()) ||
		strings.Contains(err.Message, "No space left") ||
		err.Code == codeInternal && err.Message == "could not write init file"
}

func lost(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		pgconn.SafeToRetry(err)
}

func unavailable(cause error, message, detail string) error {
	return &fault.Error{Code: fault.Unavailable, Message: message, Detail: detail, Cause: cause}
}

// unreachable is unavailable for a database that does not answer at all, or answers nothing that was asked.
func unreachable(cause error, message, detail string) error {
	return &fault.Error{
		Code: fault.Unavailable, Message: message, Detail: detail, Cause: cause, Reason: fault.DatabaseUnreachable,
	}
}
