package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/states"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/tty"
)

func forgetStatesCmd() *cobra.Command {
	var db adminDatabase
	var id string
	cmd := &cobra.Command{
		Use:   "forget-states --key ID",
		Short: "Let the server start without a lost encryption key",
		Long: `Let the server start without a key that encrypts Terraform states in its database. Use this only if the key is lost for good. The server
prints the key's id when it refuses to start.

The states stay in the database. A build that needs one fails until an owner replaces the workspace's state (coder state push) or deletes the
workspace without destroying its resources (coder delete --orphan), which must then be removed by hand. SSH keys that are encrypted with the
lost key are deleted: users get new Git keys, which they must register again. Users' secrets stay, but workspaces do not get them until their
users set the values again.

The command asks for the key's id again, or reads it as a line of standard input. Stop the server first.`,
		Example: "  coder server forget-states --key 3008c91d88373a5c",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if id == "" {
				return fault.New(fault.Invalid, "--key is required: the id of the lost key, which the server prints when it refuses to start")
			}
			return db.open(cmd, func(db *database.DB) error {
				_, lost, err := states.CountUnder(cmd.Context(), db.Queries, id)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "The key %s encrypts %d states, which builds can no longer read, %d user secrets, which workspaces no longer get, and %d SSH keys, which will be deleted.\n",
					id, lost.States, lost.Secrets, lost.SSHKeys)
				if err := confirm(cmd.Context(), "Repeat the key's id to continue without it", id); err != nil {
					return err
				}
				if lost, err = states.Forget(cmd.Context(), db, id); err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "The server now starts without the key %s. %d states and %d user secrets are lost unless the key is found.\n", id, lost.States, lost.Secrets)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&id, "key", "", "id of the lost key, 16 hexadecimal digits")
	db.flag(cmd)
	return cmd
}

// confirm asks for a word on a terminal, or reads it as a line from standard input.
func confirm(ctx context.Context, text, word string) error {
	answer, err := tty.Std(false).Ask(ctx, tty.Question{Text: text})
	if errors.Is(err, tty.ErrNotTerminal) {
		answer, err = bufio.NewReader(io.LimitReader(os.Stdin, 4096)).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("read confirmation: %w", err)
	}
	if strings.TrimSpace(answer) != word {
		return fault.New(fault.Invalid, "not confirmed, nothing was changed").WithDetail("Repeat %q when asked, or give it as a line on standard input.", word)
	}
	return nil
}
