package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// These commands are for an operator who has the server's database but no account. They work with or without a running
// server.

func serverAdminCmds() []*cobra.Command {
	return []*cobra.Command{backupCmd(), restoreCmd(), resetPasswordCmd(), createAdminUserCmd(), keysCmd(), postgresBuiltinURLCmd()}
}

// adminDatabase locates the server's database for a command.
type adminDatabase struct{ postgresOptions }

func (d *adminDatabase) flag(cmd *cobra.Command) {
	d.flags(cmd.Flags(), "URL of the server's database (default the built-in PostgreSQL)")
	flags.SetEnvPrefix(cmd, "CODER_")
	d.setEnv(cmd.Flags())
}

// attach returns the address of the server's own PostgreSQL, which runs until detach.
func attach(cmd *cobra.Command) (address string, detach func() error, err error) {
	return runBuiltIn(cmd, embedded.Attach)
}

// runBuiltIn runs the server's own PostgreSQL with embedded.Attach or embedded.Start.
func runBuiltIn(
	cmd *cobra.Command, run func(context.Context, embedded.Options) (*embedded.Server, error),
) (address string, detach func() error, err error) {
	dir := cli.ConfigDir(cmd)
	if dir == "" {
		return "", nil, errNoConfigDir
	}
	pg, err := run(cmd.Context(), embedded.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", nil, err
	}
	return pg.URL(), func() error {
		stop, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 30*time.Second)
		defer cancel()
		return pg.Stop(stop)
	}, nil
}

// accounts runs fn with the accounts in the database.
func (d *adminDatabase) accounts(cmd *cobra.Command, fn func(*users.Service) error) error {
	return d.open(cmd, func(db *database.DB) error {
		return fn(users.New(users.Options{DB: db, Logger: slog.New(slog.DiscardHandler), AccessURL: &url.URL{}}))
	})
}

// locate returns the database, until detach. builtIn provides the built-in PostgreSQL if the flags name no other.
func (d *adminDatabase) locate(
	cmd *cobra.Command, builtIn func(*cobra.Command) (string, func() error, error),
) (source database.Source, detach func() error, err error) {
	detach = func() error { return nil }
	if source, err = d.source(cmd.Context()); err == nil && source.URL == "" {
		source.URL, detach, err = builtIn(cmd)
	}
	return source, detach, err
}

// open runs fn with the database.
func (d *adminDatabase) open(cmd *cobra.Command, fn func(*database.DB) error) error {
	return d.use(cmd, false, fn)
}

// alone runs fn with the database while no server uses it.
func (d *adminDatabase) alone(cmd *cobra.Command, fn func(*database.DB) error) error {
	return d.use(cmd, true, fn)
}

func (d *adminDatabase) use(cmd *cobra.Command, alone bool, fn func(*database.DB) error) (err error) {
	source, detach, err := d.locate(cmd, attach)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, detach()) }()
	if alone {
		conn, err := source.Connect(cmd.Context(), cmd.CommandPath(), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(cmd.Context()))
		if err := database.Exclude(cmd.Context(), conn); err != nil {
			return err
		}
	}
	db, err := source.Open(cmd.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer db.Close()
	return fn(db)
}

// newPassword asks for a password on a terminal, or reads a line of standard input. It is not an argument, which other
// users can see.
func newPassword(ctx context.Context) (string, error) {
	streams := tty.Std(false)
	password, err := streams.Ask(ctx, tty.Question{Text: "New password", Secret: true})
	if errors.Is(err, tty.ErrNotTerminal) {
		line, err := bufio.NewReader(io.LimitReader(os.Stdin, 4096)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read password: %w", err)
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			return "", fault.New(fault.Invalid, "the password is missing: give it as a line on standard input")
		}
		return line, nil
	}
	if err != nil {
		return "", err
	}
	_, err = streams.Ask(ctx, tty.Question{Text: "Password again", Secret: true, Check: func(again string) error {
		if again != password {
			return errors.New("the passwords differ")
		}
		return nil
	}})
	return password, err
}

func resetPasswordCmd() *cobra.Command {
	var db adminDatabase
	cmd := &cobra.Command{
		Use:   "reset-password USER",
		Short: "Reset a user's password directly in the database",
		Long: `Reset a user's password and end the user's sessions. The command asks for the password, or reads it as a line of standard input.
Run it as the server's user on the server's machine, or with --postgres-url.`,
		Example: "  coder server reset-password ada\n  pass show coder/ada | coder server reset-password ada",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			password, err := newPassword(cmd.Context())
			if err != nil {
				return err
			}
			err = db.accounts(cmd,
				func(s *users.Service) error { return s.ResetPassword(cmd.Context(), args[0], password) })
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "Changed the password of %s and ended all earlier sessions.\n", args[0])
			return nil
		},
	}
	db.flag(cmd)
	return cmd
}

func createAdminUserCmd() *cobra.Command {
	var db adminDatabase
	var req sdk.CreateFirstUserRequest
	cmd := &cobra.Command{
		Use:   "create-admin-user --username NAME --email ADDRESS",
		Short: "Add an owner directly in the database",
		Long: `Add a user with the role owner. The command asks for the password, or reads it as a line of standard input. Run it as the server's user
on the server's machine, or with --postgres-url.`,
		Example: "  coder server create-admin-user --username ada --email ada@example.com",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Username == "" || req.Email == "" {
				return fault.New(fault.Invalid, "--username and --email are required")
			}
			if req.Password, err = newPassword(cmd.Context()); err != nil {
				return err
			}
			err = db.accounts(cmd, func(s *users.Service) error {
				_, err := s.CreateOwner(cmd.Context(), req)
				return err
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "Created the owner %s, who can now sign in.\n", req.Username)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Username, "username", "", "user name")
	f.StringVar(&req.Email, "email", "", "e-mail address")
	f.StringVar(&req.Name, "full-name", "", "full name")
	db.flag(cmd)
	return cmd
}

func postgresBuiltinURLCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "postgres-builtin-url",
		Short:   "Print the URL of the built-in PostgreSQL, including its password",
		Example: `  psql "$(coder server postgres-builtin-url)"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := cli.ConfigDir(cmd)
			if dir == "" {
				return errNoConfigDir
			}
			address, err := embedded.RunningURL(dir)
			if err != nil {
				return err
			}
			_, err = fmt.Println(address)
			return err
		},
	}
}
