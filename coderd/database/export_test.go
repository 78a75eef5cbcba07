package database

import (
	"context"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5"
)

// Migrate does what Open does to the schema, as a program with other migrations does.
func Migrate(ctx context.Context, url string, files fs.FS, logger *slog.Logger) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return Source{URL: url}.migrate(ctx, conn, patient(cfg), files, logger)
}
