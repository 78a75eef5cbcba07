package mesh

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Provisioner is a provisioner daemon that has joined.
type Provisioner struct {
	ID      uuid.UUID
	Name    string
	Tags    map[string]string // always with scope and owner
	Owner   uuid.UUID         // of a daemon with scope=user
	BuiltIn bool
	User    uuid.UUID // whose session it sent; zero for other credentials
	KeyID   uuid.UUID // of the key that it sent; zero for other credentials
	KeyName string
	// Organization is whose jobs it takes. Built-in provisioners take those of all organizations; this is then the
	// default one.
	Organization uuid.UUID

	session  string    // id of the session's token
	instance string    // of the state folder
	known    time.Time // when it asked this server to join, or was last found in the coordinator's table
}

// ProvisionerKey is a named key that a daemon has sent.
type ProvisionerKey struct {
	ID           uuid.UUID
	Name         string
	Tags         map[string]string
	Organization uuid.UUID
}

// forgetAfter is how long a daemon that is gone is remembered: until then it may have jobs, which a revocation takes
// from it.
const forgetAfter = 24 * time.Hour

// builtInPrefix begins the names of every server's own provisioners. Other names must not start with it, because an id
// is derived from its name.
const builtInPrefix = "built-in-"

// BuiltInName returns the full name of one of this process's own provisioners.
func BuiltInName(name string) string { return builtInPrefix + name }

// provisioner admits a provisioner daemon: one of this process's own, one that knows the pre-shared key or has a named
// key, or one of a user who may run it.
func (s *Service) provisioner(r *http.Request) (coordinator.Principal, error) {
	p, err := s.identify(r)
	if err != nil {
		return coordinator.Principal{}, err
	}
	before, ok := s.daemon(p.ID)
	s.provisioners.Lock()
	if ok && before.instance != p.instance && s.coord.Online(p.ID) {
		s.provisioners.Unlock()
		return coordinator.Principal{}, fault.New(fault.Conflict, "Another provisioner with the name %q is connected", p.Name).
			WithDetail("Choose another name with --name. If the other provisioner no longer exists, its name is free within a minute.")
	}
	p.known = time.Now()
	s.forgetGone(p.known)
	s.provisioners.byID[p.ID] = p
	s.provisioners.Unlock()
	// Check again: the credential may have been revoked before the revoker could find this entry.
	if _, err := s.identify(r); err != nil {
		s.forget(p)
		return coordinator.Principal{}, err
	}
	detail, err := p.detail()
	return coordinator.Principal{Kind: protocol.KindProvisioner, ID: p.ID, Name: p.Name, Detail: detail}, err
}

// shared is what all servers know about a connected daemon.
type shared struct {
	Provisioner
	Session  string `json:"session,omitempty"`
	Instance string `json:"instance,omitempty"`
}

// detail encodes p for the other servers.
func (p Provisioner) detail() (string, error) {
	data, err := json.Marshal(shared{p, p.session, p.instance})
	if err != nil {
		return "", fmt.Errorf("encode provisioner: %w", err)
	}
	if len(data) > protocol.MaxDetail {
		return "", fault.New(fault.Invalid, "The provisioner's tags are too long")
	}
	return string(data), nil
}

// provisionerOf is the inverse of detail, for a participant of any server.
func provisionerOf(p coordinator.Principal) (Provisioner, bool) {
	var known shared
	if p.Kind != protocol.KindProvisioner || json.Unmarshal([]byte(p.Detail), &known) != nil || known.ID != p.ID {
		return Provisioner{}, false
	}
	known.session, known.instance = known.Session, known.Instance
	return known.Provisioner, true
}

// forget removes the entry of a daemon that was not admitted.
func (s *Service) forget(p Provisioner) {
	s.provisioners.Lock()
	defer s.provisioners.Unlock()
	if s.provisioners.byID[p.ID].instance == p.instance && !s.coord.Online(p.ID) {
		delete(s.provisioners.byID, p.ID)
	}
}

// forgetGone removes the entries of daemons that have been gone from all servers for forgetAfter: names may be those of
// containers, each of which joins once. Called with provisioners locked.
func (s *Service) forgetGone(now time.Time) {
	for id, p := range s.provisioners.byID {
		if _, known := s.coord.Lookup(tailnet.Addr(id)); known {
			p.known = now
			s.provisioners.byID[id] = p
		} else if now.Sub(p.known) > forgetAfter {
			delete(s.provisioners.byID, id)
		}
	}
}

// identify reads the identity of a daemon, and checks its credential.
func (s *Service) identify(r *http.Request) (Provisioner, error) {
	p := Provisioner{
		Name: r.Header.Get(sdk.ProvisionerNameHeader), instance: r.Header.Get(sdk.ProvisionerInstanceHeader),
	}
	if len(p.Name) > 64 || strings.ContainsFunc(p.Name, func(c rune) bool { return c < '!' || c > '~' }) {
		return p, fault.New(fault.Invalid, "The provisioner name %q is invalid", p.Name).
			WithDetail("Use up to 64 letters, digits and punctuation marks, without spaces.")
	}
	if len(p.instance) > 64 {
		return p, fault.New(fault.Invalid, "The provisioner's instance is longer than 64 bytes")
	}
	wanted, err := s.wantedTags(r.Header.Get(sdk.ProvisionerTagsHeader))
	if err != nil {
		return p, err
	}
	p.Organization = s.opts.Organization
	named := r.Header.Get(sdk.ProvisionerOrganizationHeader)
	p.Tags = map[string]string{"scope": "organization", "owner": ""}
	for key, value := range wanted {
		p.Tags[key] = value
	}
	psk, key := r.Header.Get(sdk.ProvisionerPSKHeader), r.Header.Get(sdk.ProvisionerKeyHeader)
	identity := "provisioner "
	switch {
	case psk != "" && key != "":
		return p, fault.New(fault.Invalid, "A provisioner cannot use both a pre-shared key and a named key")
	case psk != "" && same(psk, s.builtIn):
		p.BuiltIn = true
	case psk != "":
		err = s.checkPSK(psk)
	case key != "":
		if len(wanted) > 0 {
			return p, fault.New(fault.Invalid, "A provisioner with a key has the key's tags and cannot set others").
				WithDetail("Omit --tag, or create a key with these tags.")
		}
		// Each key's daemons are participants of their own: a daemon cannot replace another by choosing its name.
		if err = s.showKey(r.Context(), &p, key); err == nil {
			identity += "key " + p.KeyID.String() + " "
			err = s.checkOrganization(r.Context(), p.Organization, named)
		}
	default:
		err = s.showSession(r, &p, named)
	}
	if err == nil && psk != "" && named != "" {
		p.Organization, err = s.organization(r.Context(), named)
	}
	if err != nil {
		return p, err
	}
	if p.Tags["scope"] == "user" && p.Owner == uuid.Nil {
		return p, fault.New(fault.Invalid,
			"A provisioner with the tag scope=user joins with its user's session, not with a key")
	}
	if !p.BuiltIn && strings.HasPrefix(p.Name, builtInPrefix) {
		return p, fault.New(fault.Invalid, "The provisioner name %q is invalid", p.Name).
			WithDetail("Names that begin with %s are reserved for built-in provisioners.", builtInPrefix)
	}
	// The id is derived from the name, so that a restarted daemon is the same participant.
	p.ID = uuid.NewSHA1(p.Organization, []byte(identity+p.Owner.String()+" "+p.Name))
	return p, nil
}

// wantedTags parses the tags that a daemon requests.
func (s *Service) wantedTags(header string) (map[string]string, error) {
	given, err := url.ParseQuery(header)
	if err != nil {
		return nil, fault.New(fault.Invalid, "The provisioner's tags are invalid: %w", err)
	}
	tags := map[string]string{}
	for key, values := range given {
		if len(values) != 1 {
			return nil, fault.New(fault.Invalid, "The provisioner tag %q is set twice", key)
		}
		tags[key] = values[0]
	}
	return tags, jobtags.Check(tags)
}

func (s *Service) checkPSK(psk string) error {
	if s.opts.ProvisionerPSK == "" {
		return fault.New(fault.Unauthenticated, "This server has no pre-shared key for provisioners").
			WithDetail("Start the server with --provisioner-daemon-psk, or sign in and omit --psk.")
	}
	if !same(psk, s.opts.ProvisionerPSK) {
		return fault.New(fault.Unauthenticated, "The pre-shared key is wrong").
			WithDetail("It must equal the server's --provisioner-daemon-psk.")
	}
	return nil
}

func (s *Service) showKey(ctx context.Context, p *Provisioner, key string) error {
	found, err := s.opts.Keys.Authenticate(ctx, secret.Token(key))
	if err != nil {
		return err
	}
	p.KeyID, p.KeyName, p.Organization = found.ID, found.Name, found.Organization
	for key, value := range found.Tags {
		p.Tags[key] = value
	}
	return nil
}

// showSession handles daemons of signed-in users. All users may run provisioners for themselves; template admins also
// for the organization.
func (s *Service) showSession(r *http.Request, p *Provisioner, organization string) error {
	actor, err := s.signedIn(r)
	if err != nil {
		return err
	}
	if organization != "" {
		p.Organization, err = s.organization(r.Context(), organization)
		if err == nil && actor.May(rbac.Read, rbac.Of(rbac.Organization, uuid.Nil).In(p.Organization)) != nil {
			err = noOrganization(organization)
		}
		if err != nil {
			return err
		}
	}
	p.User, p.KeyName, p.session = actor.UserID, sdk.KeyUser, actor.KeyID
	if p.Tags["scope"] == "user" {
		p.Owner, p.Tags["owner"] = actor.UserID, actor.UserID.String()
	}
	return mayRun(actor, *p)
}

// organization returns the id of the organization that a daemon names, by name or id.
func (s *Service) organization(ctx context.Context, reference string) (uuid.UUID, error) {
	if len(reference) > 64 {
		return uuid.Nil, noOrganization(reference[:64])
	}
	id, err := s.opts.Keys.Organization(ctx, reference)
	if fault.CodeOf(err) == fault.NotFound {
		err = noOrganization(reference)
	}
	return id, err
}

// noOrganization is the answer about an organization that does not exist, or that the daemon's user cannot see. A
// daemon does not try again after it.
func noOrganization(reference string) error {
	return fault.New(fault.Invalid, "The organization %q does not exist, or you do not have access to it", reference)
}

// checkOrganization returns a fault if a daemon with a key names another organization than the key's.
func (s *Service) checkOrganization(ctx context.Context, keys uuid.UUID, named string) error {
	if named == "" {
		return nil
	}
	id, err := s.organization(ctx, named)
	if err == nil && id != keys || fault.CodeOf(err) == fault.Invalid {
		return fault.New(fault.Invalid, "The provisioner key does not belong to the organization %q", named).
			WithDetail("Omit --org: the key decides.")
	}
	return err
}

// mayRun returns a fault unless the actor may run the provisioner: for themselves if it has an owner, else for its
// organization.
func mayRun(actor rbac.Actor, p Provisioner) error {
	if actor.May(rbac.Create, rbac.Of(rbac.ProvisionerDaemon, p.Owner).In(p.Organization)) == nil {
		return nil
	}
	if p.Owner != uuid.Nil {
		return fault.New(fault.Forbidden, "This session may not run a provisioner").
			WithDetail("Sign in with: coder login <url>")
	}
	return fault.New(fault.Forbidden, "You do not have permission to run a provisioner for the organization").
		WithDetail("Requires the role template-admin or organization-template-admin. For your own workspaces only, use --tag scope=user.")
}

// same compares in constant time, regardless of the lengths.
func same(given string, want secret.Token) bool {
	return subtle.ConstantTimeCompare(secret.Token(given).Hash(), want.Hash()) == 1
}

// BuiltInHeader returns the credential of one of this process's own provisioners.
func (s *Service) BuiltInHeader(name string) http.Header {
	return http.Header{sdk.ProvisionerNameHeader: {name}, sdk.ProvisionerPSKHeader: {s.builtIn.Reveal()}}
}

// CallingProvisioner returns the provisioner that holds a mesh address.
func (s *Service) CallingProvisioner(addr netip.Addr) (Provisioner, bool) {
	p, ok := s.coord.Lookup(addr)
	if !ok || p.Kind != protocol.KindProvisioner {
		return Provisioner{}, false
	}
	return s.daemon(p.ID)
}

// daemon returns the provisioner with an id, if it is connected to any server, or has asked this process to join.
func (s *Service) daemon(id uuid.UUID) (Provisioner, bool) {
	if connected, ok := s.coord.Lookup(tailnet.Addr(id)); ok {
		if p, ok := provisionerOf(connected); ok {
			return p, true
		}
	}
	s.provisioners.Lock()
	defer s.provisioners.Unlock()
	p, ok := s.provisioners.byID[id]
	return p, ok
}

// Paths returns how packets travel to each connected provisioner: direct or relayed.
func (s *Service) Paths() map[uuid.UUID]string {
	select {
	case <-s.joined:
	default:
		return nil
	}
	paths := map[uuid.UUID]string{}
	for _, peer := range s.node.Status().Peers {
		switch peer.Path {
		case tailnet.PathDirect:
			paths[peer.ID] = "direct"
		case tailnet.PathRelay:
			paths[peer.ID] = "relayed"
		}
	}
	return paths
}

// mayReach returns a fault unless a user may measure the path to a provisioner. Users who see it in lists may.
func mayReach(actor rbac.Actor, p Provisioner) error {
	if actor.May(rbac.Read, rbac.Of(rbac.ProvisionerDaemon, p.Owner).In(p.Organization)) != nil {
		return rbac.NotFound(rbac.Agent) // as for an unknown id
	}
	return nil
}

// KeyDeleted cuts the daemons whose key no longer exists. id is the deleted key; uuid.Nil checks every key in use. It
// blocks for a few queries.
func (s *Service) KeyDeleted(ctx context.Context, id uuid.UUID) error {
	used := s.which(func(p Provisioner) bool { return p.KeyID != uuid.Nil && (id == uuid.Nil || p.KeyID == id) })
	if len(used) == 0 {
		return nil
	}
	var keys []uuid.UUID
	for _, p := range used {
		keys = append(keys, p.KeyID)
	}
	existing, err := s.opts.Keys.Existing(ctx, keys)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range used {
		if !slices.Contains(existing, p.KeyID) {
			errs = append(errs, s.cut(ctx, p, "the provisioner key "+p.KeyName+" was deleted"))
		}
	}
	return errors.Join(errs...)
}

// recheckProvisioners cuts a user's daemons if their session has ended or may no longer run them.
func (s *Service) recheckProvisioners(ctx context.Context, userID uuid.UUID) error {
	var errs []error
	for _, p := range s.which(func(p Provisioner) bool { return p.User != uuid.Nil && (userID == uuid.Nil || p.User == userID) }) {
		actor, err := s.opts.Accounts.Session(ctx, p.session, p.User)
		if err == nil {
			err = mayRun(actor, p)
		}
		switch code := fault.CodeOf(err); {
		case err == nil:
		case code == fault.Unauthenticated || code == fault.Forbidden:
			errs = append(errs, s.cut(ctx, p, "its session may no longer run a provisioner"))
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *Service) which(which func(Provisioner) bool) []Provisioner {
	s.provisioners.Lock()
	defer s.provisioners.Unlock()
	var found []Provisioner
	for _, p := range s.provisioners.byID {
		if which(p) {
			found = append(found, p)
		}
	}
	return found
}

// cut permanently removes a daemon from the mesh.
func (s *Service) cut(ctx context.Context, p Provisioner, reason string) error {
	s.provisioners.Lock()
	delete(s.provisioners.byID, p.ID)
	s.provisioners.Unlock()
	s.coord.Revoke(p.ID, reason)
	s.log.Info("provisioner disconnected by revocation", "peer", p.Name, "reason", reason)
	return s.queue.Cut(ctx, p.ID, "The provisioner lost its access: "+reason+".")
}
