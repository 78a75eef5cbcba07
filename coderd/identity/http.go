package identity

import (
	"fmt"
	"net/http"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Where verifiers look. The first path is fixed (OpenID Connect Discovery 1.0, section 4), and names the second.
const (
	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/.well-known/jwks.json"
)

// cacheFor lets caches between keep the answers. Verifiers keep keys as long as they want.
const cacheFor = "public, max-age=300"

// configuration is the discovery document, for an issuer at which no user signs in.
type configuration struct {
	Issuer        string   `json:"issuer"`
	KeysURL       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	Scopes        []string `json:"scopes_supported"`
	Claims        []string `json:"claims_supported"`
}

func (s *Service) discovery(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Cache-Control", cacheFor)
	return httpapi.Write(w, http.StatusOK, configuration{
		Issuer: s.issuer, KeysURL: s.issuer + keysPath, ResponseTypes: []string{"id_token"},
		SubjectTypes: []string{"public"},
		Algorithms:   []string{string(jose.RS256)}, Scopes: []string{"openid"},
		Claims: []string{
			"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "kind", "organization_id", "organization",
			"template_id", "template", "workspace_id", "workspace", "agent", "build_number", "build_transition", "owner_id", "owner", "owner_email",
		},
	})
}

func (s *Service) publicKeys(w http.ResponseWriter, r *http.Request) error {
	k, err := s.load(r.Context(), s.opts.DB.Queries)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", cacheFor)
	return httpapi.Write(w, http.StatusOK, k.public())
}

func (s *Service) getIdentityKeys(w http.ResponseWriter, r *http.Request) error {
	if err := httpapi.ActorFrom(r.Context()).May(rbac.Read, deployment); err != nil {
		return err
	}
	k, err := s.load(r.Context(), s.opts.DB.Queries)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, s.show(k))
}

// deployment is the object to which the keys belong.
var deployment = rbac.Of(rbac.Deployment, uuid.Nil)

func (s *Service) show(k keys) sdk.IdentityKeys {
	shown := sdk.IdentityKeys{Issuer: s.issuer, CurrentKey: k.Current.KeyID, NextKey: k.Next.KeyID}
	if k.Previous != nil {
		shown.PreviousKey = k.Previous.KeyID
	}
	return shown
}

func (s *Service) rotateIdentityKeys(w http.ResponseWriter, r *http.Request) error {
	if err := httpapi.ActorFrom(r.Context()).May(rbac.Update, deployment); err != nil {
		return err
	}
	var req sdk.RotateIdentityKeysRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	var k keys
	err := s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		before, after, err := s.Rotate(r.Context(), q, req.All)
		if err != nil {
			return err
		}
		if k, err = s.load(r.Context(), q); err != nil {
			return err
		}
		diff := audit.Diff{}.Field("key_ids", before, after)
		return audit.Record(r.Context(), q, audit.Entry{Name: s.issuer, Diff: diff})
	})
	if err != nil {
		return fmt.Errorf("rotate keys of ID tokens: %w", err)
	}
	s.opts.Logger.InfoContext(r.Context(), "keys of ID tokens rotated", "key", k.Current.KeyID)
	return httpapi.Write(w, http.StatusOK, s.show(k))
}
