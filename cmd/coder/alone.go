package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/codermesh/codermesh/v2/coderd/database"
)

// alone lets built-in provisioners run templates unconfined while the server has one user, who could do the same
// without it.
type alone struct{ db chan *database.DB }

func newAlone() *alone { return &alone{make(chan *database.DB, 1)} }

// use sets the database, once. Until then check blocks.
func (a *alone) use(db *database.DB) { a.db <- db }

func (a *alone) check(ctx context.Context) error {
	var db *database.DB
	select {
	case db = <-a.db:
		a.db <- db
	case <-ctx.Done():
		return ctx.Err()
	}
	several, err := db.HasSeveralUsers(ctx)
	if err != nil {
		return fmt.Errorf("count users: %w", err)
	}
	if several {
		return errors.New("this server has several users")
	}
	return nil
}
