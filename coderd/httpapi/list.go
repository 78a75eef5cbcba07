package httpapi

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// WriteList answers with a JSON list, holding at most one page of it in memory. next returns the next page, and an
// empty one at the end. If it fails before anything was sent, WriteList returns its error, which can still be answered;
// later it breaks the connection, so that clients do not mistake a partial list for the whole.
func WriteList[T any](w http.ResponseWriter, next func() ([]T, error)) error {
	page, err := next()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	var buf bytes.Buffer
	buf.WriteByte('[')
	for first := true; len(page) > 0; page, err = next() {
		for _, item := range page {
			if !first {
				buf.WriteByte(',')
			}
			first = false
			if err := sdk.Encode(&buf, item); err != nil {
				panic(fmt.Errorf("encode answer: %w", err)) // a type that cannot be encoded
			}
		}
		if !sent(&buf, w) {
			return nil
		}
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	buf.WriteString("]\n")
	sent(&buf, w)
	return nil
}

// sent writes out buf and reports whether the client was still there to receive it.
func sent(buf *bytes.Buffer, w http.ResponseWriter) bool {
	_, err := buf.WriteTo(w)
	return err == nil
}

// Page is the part of a list that a request asks for: up to Limit rows, without the first Offset ones, of all rows or
// of those after After.
type Page struct {
	Limit, Offset int32
	After         *uuid.UUID
}

// Paged reads one page of a list whose rows each contain the total count, and returns that count too. Beyond the end a
// query returns no row with the count, so Paged reads the first row.
func Paged[T any](page Page, read func(Page) ([]T, error), total func(T) int64) (rows []T, count int, err error) {
	rows, err = read(page)
	first := rows
	if err == nil && len(rows) == 0 && (page.Offset > 0 || page.After != nil) {
		first, err = read(Page{Limit: 1})
	}
	if err != nil || len(first) == 0 {
		return rows, 0, err
	}
	return rows, int(total(first[0])), nil
}
