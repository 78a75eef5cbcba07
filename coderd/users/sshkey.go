package users

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// SSHKey is a user's key pair for Git: the public key as an authorized_keys line, the private one in OpenSSH's format.
type SSHKey struct {
	Public  string
	Private secret.Token
}

// SSHKey returns the user's key pair, and creates it if there is none.
func (s *Service) SSHKey(ctx context.Context, q *dbsqlc.Queries, userID uuid.UUID) (SSHKey, error) {
	row, err := s.sshKey(ctx, q, userID)
	if err != nil {
		return SSHKey{}, err
	}
	private, err := s.keys.OpenSSHKey(keyring.GitKeyPlace(userID), row.PrivateKey, row.Sealed)
	return SSHKey{Public: row.PublicKey, Private: secret.Token(private)}, err
}

func (s *Service) sshKey(ctx context.Context, q *dbsqlc.Queries, userID uuid.UUID) (dbsqlc.GitSshKey, error) {
	row, err := q.GetGitSSHKey(ctx, userID)
	if database.IsNotFound(err) {
		private, public, makeErr := newSSHKey()
		if makeErr != nil {
			return row, makeErr
		}
		if err := q.InsertGitSSHKeyOnce(ctx, dbsqlc.InsertGitSSHKeyOnceParams{
			UserID: userID, Sealed: s.keys.SealSecret(keyring.GitKeyPlace(userID), []byte(private)), PublicKey: public,
		}); err != nil {
			return row, fmt.Errorf("store SSH key: %w", err)
		}
		row, err = q.GetGitSSHKey(ctx, userID)
	}
	if err != nil {
		return row, fmt.Errorf("read SSH key: %w", err)
	}
	return row, nil
}

func newSSHKey() (private, public string, err error) {
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		return "", "", fmt.Errorf("make SSH key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		return "", "", fmt.Errorf("encode SSH key: %w", err)
	}
	sshPub, err := ssh.NewPublicKey(pub)
	if err != nil {
		return "", "", fmt.Errorf("encode SSH key: %w", err)
	}
	return string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(sshPub))), nil
}

func (s *Service) getSSHKey(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.SSHKey)
	if err != nil {
		return err
	}
	row, err := s.sshKey(r.Context(), s.db.Queries, user.ID)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, toSSHKey(row))
}

func (s *Service) replaceSSHKey(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Update, rbac.SSHKey)
	if err != nil {
		return err
	}
	private, public, err := newSSHKey()
	if err != nil {
		return err
	}
	var row dbsqlc.GitSshKey
	err = s.db.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		before, err := q.GetGitSSHKey(r.Context(), user.ID)
		if err != nil && !database.IsNotFound(err) {
			return err
		}
		if row, err = q.ReplaceGitSSHKey(r.Context(), dbsqlc.ReplaceGitSSHKeyParams{
			UserID: user.ID, Sealed: s.keys.SealSecret(keyring.GitKeyPlace(user.ID), []byte(private)),
			PublicKey: public,
		}); err != nil {
			return err
		}
		return audit.Record(r.Context(), q, audit.Entry{
			ID: user.ID, Name: user.Username, Diff: audit.Compare(before, row),
		})
	})
	if err != nil {
		return fmt.Errorf("replace SSH key: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, toSSHKey(row))
}

func toSSHKey(k dbsqlc.GitSshKey) sdk.GitSSHKey {
	return sdk.GitSSHKey{UserID: k.UserID, CreatedAt: k.CreatedAt, UpdatedAt: k.UpdatedAt, PublicKey: k.PublicKey}
}
