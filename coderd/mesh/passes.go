package mesh

import (
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	passPurpose = "mesh pass"
	// passLifetime only bounds the use of a lost pass: each connection gets a new one, and every use checks that the
	// session is still valid.
	passLifetime = 400 * 24 * time.Hour
)

// passes seals which session a client joined with.
type passes struct{ signer *signed.Signer }

// pass is the content of a pass. It identifies a client and grants no access.
type pass struct {
	Client  uuid.UUID `json:"c"`
	User    uuid.UUID `json:"u"`
	Name    string    `json:"n"`
	Session string    `json:"s"`
}

func (p passes) Issue(c coordinator.Principal) (string, error) {
	text, err := p.signer.Sign(passPurpose, pass{c.ID, c.Subject, c.Name, c.Session}, passLifetime)
	return text.Reveal(), err
}

func (p passes) Redeem(text string) (coordinator.Principal, error) {
	var said pass
	if err := p.signer.Verify(passPurpose, secret.Token(text), &said); err != nil {
		return coordinator.Principal{}, err
	}
	return coordinator.Principal{
		Kind: protocol.KindClient, ID: said.Client, Name: said.Name, Subject: said.User, Session: said.Session,
	}, nil
}
