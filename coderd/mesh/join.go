package mesh

import (
	"crypto/subtle"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/coordinator"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
	"github.com/codermesh/codermesh/tailnet"
)

// Provisioner is a provisioner daemon that has joined.
type Provisioner struct {
	ID      uuid.UUID
	Name    string
	Tags    map[string]string // always with scope and owner
	Owner   uuid.UUID         // of a daemon with scope=user
	BuiltIn bool
	// Instance is the same for all processes of one daemon, and for no other daemon. Empty: it did not say.
	Instance string
}

// coordinate binds the connection to the principal of its credential and hands it to the coordinator.
func (s *Service) coordinate(w http.ResponseWriter, r *http.Request) error {
	hello, err := coordinator.ParseHello(r)
	if err != nil {
		return err
	}
	p, err := s.principal(r, hello)
	if err != nil {
		return err
	}
	return s.coord.Handle(w, r, p, hello)
}

func (s *Service) principal(r *http.Request, hello coordinator.Hello) (coordinator.Principal, error) {
	if token := secret.Token(r.Header.Get(sdk.AgentTokenHeader)); token != "" {
		agent, err := s.opts.AuthenticateAgent(r.Context(), token)
		if err != nil {
			return coordinator.Principal{}, err
		}
		return coordinator.Principal{Kind: coordinator.KindAgent, ID: agent.ID, Name: agent.Name}, nil
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
	return coordinator.Principal{Kind: coordinator.KindClient, ID: tailnet.ClientID(hello.Key), Name: actor.Username, Subject: actor.UserID}, nil
}

// signedIn is the user of a request. Only a token that the client names itself counts: no page of another site can open
// this connection with a browser's cookie.
func (s *Service) signedIn(r *http.Request) (rbac.Actor, error) {
	if _, fromCookie := httpapi.Token(r); fromCookie {
		return rbac.Actor{}, fault.New(fault.Unauthenticated, "The mesh is joined with a token in the %s header, not with a cookie", sdk.SessionHeader)
	}
	return s.opts.Authenticate(r)
}

// provisioner lets a provisioner daemon in: one of this process's own, one that knows the pre-shared key, or one of a user who
// may run provisioners.
func (s *Service) provisioner(r *http.Request) (coordinator.Principal, error) {
	name := r.Header.Get(sdk.ProvisionerNameHeader)
	if len(name) > 64 || strings.ContainsFunc(name, func(c rune) bool { return c < '!' || c > '~' }) {
		return coordinator.Principal{}, fault.New(fault.Invalid, "The provisioner's name %q is not usable", name).
			WithDetail("Use up to 64 letters, digits and punctuation marks, without spaces.")
	}
	tags, err := url.ParseQuery(r.Header.Get(sdk.ProvisionerTagsHeader))
	if err != nil {
		return coordinator.Principal{}, fault.New(fault.Invalid, "The provisioner's tags are malformed: %w", err)
	}
	p := Provisioner{Name: name, Tags: map[string]string{"scope": "organization", "owner": ""}}
	for key := range tags {
		p.Tags[key] = tags.Get(key)
	}
	key := r.Header.Get(sdk.ProvisionerPSKHeader)
	switch {
	case key != "" && same(key, s.builtIn):
		p.BuiltIn = true
	case key != "":
		if s.opts.ProvisionerPSK == "" {
			return coordinator.Principal{}, fault.New(fault.Unauthenticated, "This server has no pre-shared key for provisioners").
				WithDetail("Start it with --provisioner-daemon-psk, or sign in and leave --psk away.")
		}
		if !same(key, s.opts.ProvisionerPSK) {
			return coordinator.Principal{}, fault.New(fault.Unauthenticated, "The pre-shared key is wrong").
				WithDetail("It must equal the server's --provisioner-daemon-psk.")
		}
	default:
		actor, err := s.signedIn(r)
		if err != nil {
			return coordinator.Principal{}, err
		}
		if p.Tags["scope"] == "user" {
			p.Owner, p.Tags["owner"] = actor.UserID, actor.UserID.String()
		} else if err := rbac.Needs(rbac.Create, rbac.ProvisionerDaemon).Check(actor); err != nil {
			return coordinator.Principal{}, err
		}
	}
	if p.Tags["scope"] == "user" && p.Owner == uuid.Nil {
		return coordinator.Principal{}, fault.New(fault.Invalid, "A provisioner with the tag scope=user joins with its user's session, not with a key")
	}
	// The id follows from the name, so that a daemon that was restarted is the same participant.
	p.ID = uuid.NewSHA1(s.opts.Organization, []byte("provisioner "+p.Owner.String()+" "+name))
	p.Instance = r.Header.Get(sdk.ProvisionerInstanceHeader)
	s.provisioners.Lock()
	defer s.provisioners.Unlock()
	if other, known := s.provisioners.byID[p.ID]; known && other.Instance != p.Instance && s.coord.Online(p.ID) {
		return coordinator.Principal{}, fault.New(fault.Conflict, "Another provisioner with the name %q is connected", name).
			WithDetail("Give this one another with --name. If the other no longer exists, it is forgotten within a minute.")
	}
	s.provisioners.byID[p.ID] = p
	return coordinator.Principal{Kind: coordinator.KindProvisioner, ID: p.ID, Name: name}, nil
}

// same compares in constant time, whatever the lengths.
func same(given string, want secret.Token) bool {
	return subtle.ConstantTimeCompare(secret.Token(given).Hash(), want.Hash()) == 1
}

// BuiltInHeader is the credential of one of this process's own provisioners.
func (s *Service) BuiltInHeader(name string) http.Header {
	return http.Header{sdk.ProvisionerNameHeader: {name}, sdk.ProvisionerPSKHeader: {s.builtIn.Reveal()}}
}

// CallingProvisioner is the provisioner that holds a mesh address.
func (s *Service) CallingProvisioner(addr netip.Addr) (Provisioner, bool) {
	p, ok := s.coord.Lookup(addr)
	if !ok || p.Kind != coordinator.KindProvisioner {
		return Provisioner{}, false
	}
	s.provisioners.Lock()
	defer s.provisioners.Unlock()
	found, ok := s.provisioners.byID[p.ID]
	return found, ok
}
