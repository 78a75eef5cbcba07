package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

func keysCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Manage the keys that encrypt data in the database",
		Long: `List, rotate and forget the state keys, with which the server encrypts Terraform states, external logins, users' secrets, SSH keys,
the seed of SSH host keys, the keys that sign ID tokens and ACME's data in its database.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listKeysCmd(), rotateKeysCmd(), forgetKeysCmd())
	return cmd
}

// optional returns the server's keys, or nil if none are given and the configuration folder has none.
func (k *stateKeys) optional(cmd *cobra.Command) (*keyring.Ring, error) {
	if !k.given() {
		path, err := k.path(cmd)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	_, ring, err := k.read(cmd)
	return ring, err
}

// listedKey is a state key as coder server keys list shows it.
type listedKey struct {
	ID      string                 `json:"id"` // "" for values that are not encrypted
	Status  string                 `json:"status"`
	Servers int                    `json:"servers"` // running ones that have it
	Values  map[keyring.Kind]int64 `json:"values"`
	summary string
}

// describeKeys lists the keys of a ring, which may be nil, in their order, and then the other keys that encrypt
// something in the database.
func describeKeys(ctx context.Context, db *database.DB, ring *keyring.Ring) ([]listedKey, error) {
	all, err := keyring.Usages(ctx, db.Queries)
	if err != nil {
		return nil, err
	}
	servers, err := db.ListServers(ctx, database.ServerLifetime.Seconds())
	if err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	var keys []listedKey
	add := func(id, status string) {
		k := listedKey{ID: id, Status: status, Values: map[keyring.Kind]int64{}}
		if i := slices.IndexFunc(all, func(u keyring.Usage) bool { return u.Key == id }); i >= 0 {
			k.Values, k.summary = all[i].Values, all[i].String()
		}
		for _, s := range servers {
			if slices.Contains(s.StateKeys, id) {
				k.Servers++
			}
		}
		keys = append(keys, k)
	}
	if ring != nil {
		status := "encrypts"
		for _, id := range ring.IDs() {
			add(id, status)
			status = "decrypts"
		}
	}
	for _, u := range all {
		switch {
		case ring != nil && ring.Has(u.Key):
		case u.Key == "":
			add("", "not encrypted")
		case u.Forgotten:
			add(u.Key, "forgotten")
		default:
			add(u.Key, "missing")
		}
	}
	return keys, nil
}

func listKeysCmd() *cobra.Command {
	var db adminDatabase
	var keys stateKeys
	list := output.List[listedKey]{Columns: []output.Column[listedKey]{
		output.Col("key", func(k listedKey) string { return k.ID }),
		output.Col("status", func(k listedKey) string { return k.Status }),
		output.Col("servers", func(k listedKey) string { return fmt.Sprint(k.Servers) }),
		output.Col("values", func(k listedKey) string { return k.summary }),
	}}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the state keys and what they encrypt",
		Long: `List the server's state keys by their ids, with the number of running servers that have each and of the values that it encrypts. The status
is "encrypts" for the first key and "decrypts" for the server's other keys, "missing" for keys that encrypt something and that the server
does not have, and "forgotten" for those that were given up. The keys themselves are not printed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ring, err := keys.optional(cmd)
			if err != nil {
				return err
			}
			return db.open(cmd, func(db *database.DB) error {
				described, err := describeKeys(cmd.Context(), db, ring)
				if err != nil {
					return err
				}
				return list.Print(os.Stdout, described)
			})
		},
	}
	list.Flags(cmd)
	keys.flags(cmd)
	db.flag(cmd)
	return cmd
}

func rotateKeysCmd() *cobra.Command {
	var db adminDatabase
	var keys stateKeys
	list := output.List[keyring.Rotated]{Columns: []output.Column[keyring.Rotated]{
		output.Col("kind", func(r keyring.Rotated) string { return string(r.Kind) }),
		output.Col("encrypted", func(r keyring.Rotated) string { return fmt.Sprint(r.Resealed) }),
		output.Col("unreadable", func(r keyring.Rotated) string { return fmt.Sprint(r.Unreadable) }),
	}}
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Encrypt everything in the database with the first state key",
		Long: `Encrypt everything in the database with the first state key that is encrypted with another one, and print how many values of each kind
were. Servers may run if they encrypt with the same key. The command may be stopped and run again.

To replace a key on several servers: add the new key after the old one on each server, and restart it; then make the new key the first
on each, and restart it; then rotate; then remove the old key.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, ring, err := keys.read(cmd)
			if err != nil {
				return err
			}
			ctx := audit.OnHost(cmd.Context())
			return db.open(cmd, func(db *database.DB) error {
				if err := ring.CheckServers(ctx, db); err != nil {
					return err
				}
				if err := ring.Check(ctx, db); err != nil {
					return err
				}
				log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
				report, err := ring.Rotate(ctx, db, log)
				if err != nil {
					return err
				}
				if err := list.Print(os.Stdout, report); err != nil {
					return err
				}
				return concludeRotation(ctx, db, ring)
			})
		},
	}
	list.Flags(cmd)
	keys.flags(cmd)
	db.flag(cmd)
	return cmd
}

// concludeRotation says which keys can be removed, or returns a fault if a key of the ring but the first is still in
// use.
func concludeRotation(ctx context.Context, db *database.DB, ring *keyring.Ring) error {
	used, err := keyring.KeysInUse(ctx, db.Queries)
	if err != nil {
		return err
	}
	ids := ring.IDs()
	old := ids[1:]
	if still := slices.DeleteFunc(slices.Clone(old), func(id string) bool { return !slices.Contains(used, id) }); len(still) > 0 {
		return fault.New(fault.Conflict, "Some values under %s could not be encrypted: they are damaged, or were moved in the database", strings.Join(still, ", ")).
			WithDetail("They are unchanged and named above. Replace or delete them, or keep the old keys.")
	}
	fmt.Fprintf(os.Stderr, "The key %s encrypts everything.\n", ids[0])
	if len(old) > 0 {
		fmt.Fprintf(os.Stderr, "You can remove %s from the keys of every server. Earlier backups still need them.\n",
			strings.Join(old, ", "))
	}
	return nil
}

func forgetKeysCmd() *cobra.Command {
	var db adminDatabase
	var keys stateKeys
	var yes bool
	cmd := &cobra.Command{
		Use:   "forget ID...",
		Short: "Allow the server to start without lost state keys",
		Long: `Allow the server to start without state keys that are lost for good. Stop all servers first. The server prints the ids of the keys that it
lacks when it refuses to start.

The command prints what is lost and what each user has to do, and asks for confirmation. It deletes what the lost keys encrypt and what can
be made again: SSH keys, external logins, sign-ins (users have to sign in again), SSH host keys, the keys that sign ID tokens, ACME's data. States and the values of users'
secrets stay, and are readable again if a key is found: a build that needs such a state fails until an owner replaces the state (coder state push)
or deletes the workspace without destroying its resources (coder delete --orphan), and workspaces do not get such secrets until their users set
the values again.

Nothing is deleted that one of the server's keys opens.`,
		Example: "  coder server keys forget 3008c91d88373a5c",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			ring, err := keys.optional(cmd)
			if err != nil {
				return err
			}
			ctx := audit.OnHost(cmd.Context())
			return db.alone(cmd, func(db *database.DB) error {
				loss, err := keyring.FindLoss(ctx, db.Queries, ring, ids)
				if err != nil {
					return err
				}
				describeLoss(os.Stderr, loss, ids)
				if !yes {
					if err := confirm(ctx, `Type "forget" to continue`, "forget"); err != nil {
						return err
					}
				}
				if _, err = keyring.Forget(ctx, db, ring, ids); err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "The server now starts without %s.\n", strings.Join(ids, ", "))
				return nil
			})
		},
	}
	flags.Yes(cmd, &yes)
	keys.flags(cmd)
	db.flag(cmd)
	return cmd
}

// describeLoss says what is lost with some keys, and who has to do what about it.
func describeLoss(w io.Writer, loss keyring.Loss, ids []string) {
	fmt.Fprintf(w, "Lost with %s: %s.\n", strings.Join(ids, ", "), keyring.Usage{Values: loss.Values})
	say := func(what string, items []string) {
		if len(items) > 0 {
			fmt.Fprintf(w, "%s:\n  %s\n", what, strings.Join(items, "\n  "))
		}
	}
	names := func(all []keyring.Property) (out []string) {
		for _, p := range all {
			out = append(out, p.String())
		}
		return out
	}
	say("Workspaces whose builds fail until an owner runs coder state push, or coder delete --orphan",
		names(loss.Workspaces))
	say("Users who have to sign in again", loss.SignIns)
	say("External logins that users have to link again in the dashboard", names(loss.Logins))
	say("Secrets whose values users have to set again (coder secret update)", names(loss.Secrets))
	say("Users who get a new key for git, which they have to register (coder publickey)", loss.SSHKeys)
	if loss.Values[keyring.SSHHostKeys] > 0 {
		fmt.Fprintln(w, "The deployment's SSH host keys and certificate authorities change. SSH clients that know them warn, until the old ones are removed (ssh-keygen -R HOST), and SSH certificates end.")
	}
	if loss.Values[keyring.IdentityKeys] > 0 {
		fmt.Fprintln(w, "ID tokens of workspaces and builds that were issued before no longer count, and verifiers that do not fetch the deployment's keys need the new ones.")
	}
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
		return fault.New(fault.Invalid, "not confirmed, nothing was changed").
			WithDetail("Type %q when asked, give it as a line on standard input, or use --yes.", word)
	}
	return nil
}
