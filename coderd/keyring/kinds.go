package keyring

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Kind is a kind of values that are kept encrypted, as operators read it and as the queries CountSealed and
// CountSealedWebhooks name it.
type Kind string

const (
	WorkspaceStates Kind = "states"           // of builds
	StatePieces     Kind = "pieces of states" // that provisioners are sending
	ExternalLogins  Kind = "external logins"  // users' tokens for other services, also those of their sign-ins
	UserSecrets     Kind = "user secrets"
	Webhooks        Kind = "webhooks"      // their URLs and signing secrets
	SSHKeys         Kind = "SSH keys"      // users' private keys for git
	SSHHostKeys     Kind = "SSH host keys" // the seed from which they derive, and certificate authorities
	IdentityKeys    Kind = "identity keys" // that sign ID tokens
	ACMEData        Kind = "ACME data"
)

// kind says how the values of one kind follow a new key.
type kind struct {
	Kind
	column string // table.column that has the values
	// replaced: servers start without the key, because a value that they cannot read can be replaced.
	replaced bool
	// reseal encrypts each value that is not under the first key.
	reseal func(context.Context, *pass) error
}

// kinds are all of them. A test compares their columns with the schema.
var kinds = []kind{
	{ExternalLogins, "external_auth_links.tokens", false, resealLogins},
	{UserSecrets, "user_secrets.sealed", false, resealUserSecrets},
	{Webhooks, "webhooks.sealed", false, resealWebhooks},
	{SSHKeys, "git_ssh_keys.sealed", false, resealSSHKeys},
	{SSHHostKeys, "settings.value", true, resealSSHSettings}, // each SSHSetting
	{IdentityKeys, "settings.value", true, resealIdentityKeys},
	{ACMEData, "settings.value", true, resealACME}, // among other settings
	{StatePieces, "provisioner_job_state_pieces.data", false, resealPieces},
	{WorkspaceStates, "workspace_builds.state", false, resealStates},
}

// page is the number of rows in one query.
const page = 100

// pass goes once through all values that are not under the first key.
type pass struct {
	ring    *Ring
	db      *database.DB
	log     *slog.Logger
	changed int64 // values that were under another key, changed by this pass or by a server
	Rotated       // of the present kind
}

// secret encrypts one value with the first key. store replaces the value, unless it has changed meanwhile, and returns
// the number of rows.
func (p *pass) secret(ctx context.Context, place Place, stored []byte, store func(sealed []byte) (int64, error)) error {
	plain, err := p.ring.OpenSecret(place, stored)
	if err != nil {
		p.unreadable(ctx, stored, "place", place.name, "err", err)
		return nil
	}
	return p.store(place, plain, store)
}

func (p *pass) store(place Place, plain []byte, store func(sealed []byte) (int64, error)) error {
	rows, err := store(p.ring.SealSecret(place, plain))
	if err != nil {
		return fmt.Errorf("encrypt %s: %w", place.name, err)
	}
	p.changed++
	p.Rotated.Resealed += rows
	return nil
}

// unreadable counts a value that stays as it is. It logs damaged ones, and not those whose key is missing.
func (p *pass) unreadable(ctx context.Context, stored []byte, attrs ...any) {
	p.Rotated.Unreadable++
	if id, encrypted := keyOf(stored); !encrypted || p.ring.find(id) != nil {
		p.log.ErrorContext(ctx, "cannot re-encrypt damaged value", attrs...)
	}
}

// pages visits the rows of a query page by page. next returns the rows after one, at first the zero value.
func pages[Row any](next func(after Row) ([]Row, error), visit func(Row) error) error {
	var after Row
	for {
		rows, err := next(after)
		if err != nil {
			return fmt.Errorf("list values to encrypt: %w", err)
		}
		if len(rows) == 0 {
			return nil
		}
		for _, row := range rows {
			if err := visit(row); err != nil {
				return err
			}
		}
		after = rows[len(rows)-1]
	}
}

func resealLogins(ctx context.Context, p *pass) error {
	return pages(func(after dbsqlc.ListExternalAuthLinksNotUnderRow) ([]dbsqlc.ListExternalAuthLinksNotUnderRow, error) {
		return p.db.ListExternalAuthLinksNotUnder(ctx, dbsqlc.ListExternalAuthLinksNotUnderParams{
			Header: p.ring.header(), AfterUser: after.UserID, AfterProvider: after.ProviderID, MaxRows: page,
		})
	}, func(row dbsqlc.ListExternalAuthLinksNotUnderRow) error {
		return p.secret(ctx, LoginPlace(row.UserID, row.ProviderID), row.Tokens, func(sealed []byte) (int64, error) {
			return p.db.ReencryptExternalAuthLink(ctx, dbsqlc.ReencryptExternalAuthLinkParams{
				UserID: row.UserID, ProviderID: row.ProviderID, Sealed: sealed, Before: row.Tokens,
			})
		})
	})
}

func resealUserSecrets(ctx context.Context, p *pass) error {
	return pages(func(after dbsqlc.ListUserSecretsNotUnderRow) ([]dbsqlc.ListUserSecretsNotUnderRow, error) {
		return p.db.ListUserSecretsNotUnder(ctx, dbsqlc.ListUserSecretsNotUnderParams{
			Header: p.ring.header(), After: after.ID, MaxRows: page,
		})
	}, func(row dbsqlc.ListUserSecretsNotUnderRow) error {
		return p.secret(ctx, SecretPlace(row.UserID, row.ID), row.Sealed, func(sealed []byte) (int64, error) {
			return p.db.ReencryptUserSecret(ctx, dbsqlc.ReencryptUserSecretParams{
				ID: row.ID, Sealed: sealed, Before: row.Sealed,
			})
		})
	})
}

func resealWebhooks(ctx context.Context, p *pass) error {
	return pages(func(after dbsqlc.ListWebhooksNotUnderRow) ([]dbsqlc.ListWebhooksNotUnderRow, error) {
		return p.db.ListWebhooksNotUnder(ctx, dbsqlc.ListWebhooksNotUnderParams{
			Header: p.ring.header(), After: after.ID, MaxRows: page,
		})
	}, func(row dbsqlc.ListWebhooksNotUnderRow) error {
		return p.secret(ctx, WebhookPlace(row.ID), row.Sealed, func(sealed []byte) (int64, error) {
			return p.db.ReencryptWebhook(ctx, dbsqlc.ReencryptWebhookParams{
				ID: row.ID, Sealed: sealed, Before: row.Sealed,
			})
		})
	})
}

func resealSSHKeys(ctx context.Context, p *pass) error {
	return pages(func(after dbsqlc.ListGitSSHKeysNotUnderRow) ([]dbsqlc.ListGitSSHKeysNotUnderRow, error) {
		return p.db.ListGitSSHKeysNotUnder(ctx, dbsqlc.ListGitSSHKeysNotUnderParams{
			Header: p.ring.header(), After: after.UserID, MaxRows: page,
		})
	}, func(row dbsqlc.ListGitSSHKeysNotUnderRow) error {
		place := GitKeyPlace(row.UserID)
		store := func(sealed []byte) (int64, error) {
			return p.db.ReencryptGitSSHKey(ctx, dbsqlc.ReencryptGitSSHKeyParams{
				UserID: row.UserID, Sealed: sealed, Before: row.Sealed,
			})
		}
		if len(row.Sealed) == 0 { // stored by a release that did not encrypt
			return p.store(place, []byte(row.PrivateKey), store)
		}
		return p.secret(ctx, place, row.Sealed, store)
	})
}

func resealSSHSettings(ctx context.Context, p *pass) error {
	for _, setting := range []SSHSetting{HostSeed, UserCA, HostCA} {
		if err := p.setting(ctx, string(setting), setting.Place()); err != nil {
			return err
		}
	}
	return nil
}

func resealIdentityKeys(ctx context.Context, p *pass) error {
	return p.setting(ctx, IdentitySetting, IdentityPlace())
}

// setting encrypts the value of a setting with the first key.
func (p *pass) setting(ctx context.Context, key string, place Place) error {
	stored, err := p.db.GetSetting(ctx, key)
	if database.IsNotFound(err) || err == nil && bytes.HasPrefix(stored, p.ring.header()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read setting %s: %w", key, err)
	}
	return p.secret(ctx, place, stored, func(sealed []byte) (int64, error) {
		return p.db.ReplaceSetting(ctx, dbsqlc.ReplaceSettingParams{Key: key, After: sealed, Before: stored})
	})
}

func resealACME(ctx context.Context, p *pass) error {
	return pages(func(after dbsqlc.ListACMEDataNotUnderRow) ([]dbsqlc.ListACMEDataNotUnderRow, error) {
		return p.db.ListACMEDataNotUnder(ctx, dbsqlc.ListACMEDataNotUnderParams{
			Header: p.ring.header(), After: after.Name, MaxRows: page,
		})
	}, func(row dbsqlc.ListACMEDataNotUnderRow) error {
		return p.secret(ctx, ACMEPlace(row.Name), row.Value, func(sealed []byte) (int64, error) {
			return p.db.ReencryptACMEData(ctx, dbsqlc.ReencryptACMEDataParams{
				Name: row.Name, Sealed: sealed, Before: row.Value,
			})
		})
	})
}

func resealPieces(ctx context.Context, p *pass) error {
	return pages(func(after dbsqlc.ListStatePiecesNotUnderRow) ([]dbsqlc.ListStatePiecesNotUnderRow, error) {
		return p.db.ListStatePiecesNotUnder(ctx, dbsqlc.ListStatePiecesNotUnderParams{
			Header: p.ring.header(), AfterJob: after.JobID, AfterByte: after.FirstByte, MaxRows: page,
		})
	}, func(row dbsqlc.ListStatePiecesNotUnderRow) error {
		return p.state(ctx, "job", row.JobID, func(q *dbsqlc.Queries) (uuid.UUID, []byte, error) {
			piece, err := q.LockStatePiece(ctx, dbsqlc.LockStatePieceParams(row))
			return piece.WorkspaceID, piece.Data, err
		}, func(q *dbsqlc.Queries, sealed []byte) error {
			return q.ReencryptStatePiece(ctx, dbsqlc.ReencryptStatePieceParams{
				JobID: row.JobID, FirstByte: row.FirstByte, Data: sealed,
			})
		})
	})
}

func resealStates(ctx context.Context, p *pass) error {
	first := p.ring.keys[0].id
	return pages(func(after uuid.UUID) ([]uuid.UUID, error) {
		return p.db.ListStatesNotUnder(ctx, dbsqlc.ListStatesNotUnderParams{
			StateKey: first[:], After: after, MaxRows: page,
		})
	}, func(build uuid.UUID) error {
		return p.state(ctx, "build", build, func(q *dbsqlc.Queries) (uuid.UUID, []byte, error) {
			row, err := q.LockBuildState(ctx, build)
			return row.WorkspaceID, row.State, err
		}, func(q *dbsqlc.Queries, sealed []byte) error {
			return q.ReencryptBuildState(ctx, dbsqlc.ReencryptBuildStateParams{ID: build, State: sealed})
		})
	})
}

// state encrypts a state, or a piece of one, while its row is locked: it may be too large to be compared.
func (p *pass) state(ctx context.Context, what string, id uuid.UUID, lock func(*dbsqlc.Queries) (workspace uuid.UUID, stored []byte, err error), store func(q *dbsqlc.Queries, sealed []byte) error) error {
	var stored []byte
	err := p.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		workspace, sealed, err := lock(q)
		if err != nil {
			return err
		}
		stored = sealed
		state, err := p.ring.Open(workspace, stored)
		if err != nil {
			return err
		}
		return store(q, p.ring.Seal(workspace, state))
	})
	switch {
	case database.IsNotFound(err): // deleted meanwhile
		return nil
	case fault.CodeOf(err) == fault.Conflict: // the stored state stays
		p.unreadable(ctx, stored, what, id, "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("encrypt state of %s %s: %w", what, id, err)
	}
	p.changed++
	p.Rotated.Resealed++
	return nil
}
