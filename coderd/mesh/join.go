package mesh

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/credential"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// agentIDVersion is the version of random UUIDs (RFC 9562, section 5.4). Ids of provisioners and clients are derived
// from their names and keys and have version 5. A template or a user's own provisioner chooses the ids of the agents it
// reports, and so cannot choose one of those.
const agentIDVersion = 4

// coordinate binds the connection to the principal of its credential and hands it to the coordinator.
func (s *Service) coordinate(w http.ResponseWriter, r *http.Request) error {
	hello, err := protocol.ParseHello(r)
	if err != nil {
		return err
	}
	p, err := s.principal(r, hello)
	if err != nil {
		return err
	}
	if p.Kind == protocol.KindClient {
		leave, err := s.crowd.enter(p.Subject)
		if err != nil {
			return err
		}
		defer leave()
		s.knownClients.note(p, time.Now())
	}
	if p.Kind == protocol.KindAgent {
		leave, err := s.joins.enter(r.Context(), p.ID)
		if err != nil {
			return err
		}
		defer leave()
	}
	return s.coord.Handle(w, r, p, hello)
}

func (s *Service) principal(r *http.Request, hello protocol.Hello) (coordinator.Principal, error) {
	if token := secret.Token(r.Header.Get(sdk.AgentTokenHeader)); token != "" {
		agent, err := s.agents.AuthenticateAgent(r.Context(), token)
		if err != nil {
			return coordinator.Principal{}, err
		}
		if agent.ID.Version() != agentIDVersion {
			return coordinator.Principal{}, fault.New(fault.Forbidden, "The agent id %s is not random", agent.ID).
				WithDetail("Resources of type coder_agent have random ids. This id was set in the workspace's state.")
		}
		p := coordinator.Principal{Kind: protocol.KindAgent, ID: agent.ID, Name: agent.Name}
		if agent.Owner != uuid.Nil {
			p.Detail = agent.Owner.String() // see Service.group
		}
		return p, nil
	}
	if token := secret.Token(r.Header.Get(sdk.ProxyTokenHeader)); token != "" {
		proxy, err := s.proxies.AuthenticateProxy(r.Context(), token)
		if err != nil {
			return coordinator.Principal{}, err
		}
		return coordinator.Principal{
			Kind: protocol.KindProxy, ID: tailnet.ClientID(hello.Key), Name: proxy.Name, Subject: proxy.ID,
			Session: proxy.Fingerprint, Addr: httpapi.ClientAddr(r.Context()),
		}, nil
	}
	if r.Header.Get(sdk.ProvisionerNameHeader) != "" {
		return s.provisioner(r)
	}
	actor, err := s.signedIn(r)
	if err != nil {
		return coordinator.Principal{}, err
	}
	if err := rbac.Needs(rbac.Connect, rbac.Agent).Check(actor); err != nil {
		return coordinator.Principal{}, err
	}
	return coordinator.Principal{
		Kind: protocol.KindClient, ID: tailnet.ClientID(hello.Key), Name: actor.Username, Subject: actor.UserID,
		Session: actor.KeyID, Addr: httpapi.ClientAddr(r.Context()),
	}, nil
}

// signedIn returns the user of a request. Only a token that the client sends explicitly counts: no page of another site
// can open this connection with a browser's cookie.
func (s *Service) signedIn(r *http.Request) (rbac.Actor, error) {
	if _, fromCookie := credential.Of(r); fromCookie {
		return rbac.Actor{}, fault.New(fault.Unauthenticated,
			"Joining the mesh requires a token in the %s header, not a cookie", sdk.SessionHeader)
	}
	return s.opts.Accounts.Authenticate(r)
}
