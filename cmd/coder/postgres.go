package main

import (
	"context"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/rdsauth"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Values of --postgres-auth.
const (
	authPassword = "password"
	authRDS      = "awsiamrds"
)

// postgresOptions are the flags that name the database.
type postgresOptions struct{ url, auth string }

func (opts *postgresOptions) flags(f *pflag.FlagSet, usage string) {
	f.StringVar(&opts.url, "postgres-url", "", usage)
	f.StringVar(&opts.auth, "postgres-auth", authPassword,
		"how to sign in to PostgreSQL: password, or awsiamrds for IAM at Amazon RDS with the machine's AWS credentials")
}

// setEnv names the variables, after flags.SetEnvPrefix.
func (opts *postgresOptions) setEnv(f *pflag.FlagSet) {
	flags.SetEnv(f.Lookup("postgres-url"), "CODER_PG_CONNECTION_URL")
	flags.SetEnv(f.Lookup("postgres-auth"), "CODER_PG_AUTH")
}

// source returns the database that the flags name. The URL is empty for the built-in one.
func (opts *postgresOptions) source(ctx context.Context) (database.Source, error) {
	s := database.Source{URL: opts.url}
	switch opts.auth {
	case "", authPassword:
		return s, nil
	case authRDS:
	default:
		return s, fault.New(fault.Invalid, "--postgres-auth must be %s or %s, not %q", authPassword, authRDS, opts.auth)
	}
	if opts.url == "" {
		return s, fault.New(fault.Invalid, "--postgres-auth=%s requires --postgres-url", authRDS)
	}
	tokens, err := rdsauth.New(ctx, opts.url)
	if err != nil {
		return s, err
	}
	s.Password = tokens.Password
	return s, nil
}

// poolOptions are the flags that size the server's pool.
type poolOptions struct {
	open int
	idle string
}

func (opts *poolOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&opts.open, "postgres-conn-max-open", 0, "largest number of connections to PostgreSQL, besides two for notifications; 0 means 4 per processor, from 16 to 30")
	f.StringVar(&opts.idle, "postgres-conn-max-idle", "auto", `number of unused connections that stay open, or "auto": all, until they were unused for five minutes`)
}

func (opts *poolOptions) setEnv(f *pflag.FlagSet) {
	flags.SetEnv(f.Lookup("postgres-conn-max-open"), "CODER_PG_CONN_MAX_OPEN")
	flags.SetEnv(f.Lookup("postgres-conn-max-idle"), "CODER_PG_CONN_MAX_IDLE")
}

// size sets the pool's sizes.
func (opts *poolOptions) size(s *database.Source) error {
	if opts.open < 0 || opts.open > 10_000 {
		return fault.New(fault.Invalid, "--postgres-conn-max-open cannot be %d", opts.open)
	}
	s.MaxOpen = opts.open
	if opts.idle == "auto" {
		return nil
	}
	idle, err := strconv.Atoi(opts.idle)
	if err != nil || idle < 0 {
		return fault.New(fault.Invalid, `--postgres-conn-max-idle must be a number or "auto", not %q`, opts.idle)
	}
	if opts.open > 0 && idle > opts.open {
		return fault.New(fault.Invalid,
			"--postgres-conn-max-idle (%d) cannot be larger than --postgres-conn-max-open (%d)", idle, opts.open)
	}
	s.MaxIdle = &idle
	return nil
}
