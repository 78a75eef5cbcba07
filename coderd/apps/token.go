package apps

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/secret"
)

const (
	authPath = "/api/v2/applications/auth-redirect"

	// The session cookie has the dashboard's name. Browsers never send it to an app's host, and the proxy never forwards it to
	// an app.
	sessionCookie = "coder_session_token"
	sessionHeader = "Coder-Session-Token"
	// tokenCookie and stateCookie belong to an app's host. On HTTPS they have the prefix that makes browsers refuse to let
	// other hosts set them.
	tokenCookie = "coder_app_token"
	stateCookie = "coder_app_state"
	hostPrefix  = "__Host-"
	codeParam   = "coder_app_code"

	// A code is part of an address, and expires before it could be used elsewhere.
	codeLifetime  = time.Minute
	stateLifetime = 10 * time.Minute
	// A token is renewed while its host is in use. It ends with the session that it was issued for, whatever its lifetime.
	tokenLifetime = time.Hour
	renewAfter    = tokenLifetime / 2
	// A token in a path cannot be renewed, because the page's address cannot change.
	pathLifetime = 12 * time.Hour
)

// Purposes of signed tokens.
const (
	purposeCode = "app code"
	purposeHost = "app host"
	purposePath = "app path"
)

// claims are the content of a token: who may visit what.
type claims struct {
	User   uuid.UUID `json:"u"`
	Key    string    `json:"k"`
	Scope  string    `json:"s"`           // the host, or for a path the agent and the slug
	State  string    `json:"h,omitempty"` // for a code: the hash of the cookie of the browser that asked for it
	Issued int64     `json:"i"`           // Unix time
}

func (s *Service) cookieName(name string) string {
	if s.secure {
		return hostPrefix + name
	}
	return name
}

func (s *Service) setCookie(w http.ResponseWriter, name, value string, lifetime time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: s.cookieName(name), Value: value, Path: "/", MaxAge: int(lifetime / time.Second), HttpOnly: true, Secure: s.secure,
		SameSite: http.SameSiteLaxMode,
	})
}

func hash(state string) string {
	sum := sha256.Sum256([]byte(state))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// signIn sends a browser to the dashboard for a token of this host. The code that it brings back works only in this browser.
func (s *Service) signIn(w http.ResponseWriter, r *http.Request, label string) error {
	state := secret.Text(22)
	s.setCookie(w, stateCookie, state, stateLifetime)
	u := *s.opts.AccessURL
	u.Path = authPath
	u.RawQuery = url.Values{"redirect_uri": {s.hosts.origin(label) + cleanURI(r.URL)}, "state": {hash(state)}}.Encode()
	redirect(w, r, u.String())
	return nil
}

// cleanURI returns a request's path and query without this server's own parameters. It begins with exactly one slash.
func cleanURI(u *url.URL) string {
	clean := url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: withoutParams(u.RawQuery)}
	return "/" + strings.TrimLeft(clean.RequestURI(), "/")
}

// withoutParams removes this server's own parameters from a query, and leaves the rest unchanged.
func withoutParams(query string) string {
	if !strings.Contains(query, codeParam) && !strings.Contains(query, sessionCookie) {
		return query
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err != nil || plain != codeParam && plain != sessionCookie {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

func redirect(w http.ResponseWriter, r *http.Request, to string) {
	httpapi.NoStore(w.Header())
	w.Header().Set("Referrer-Policy", "no-referrer") // addresses contain codes
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// authorize gives the browser of a signed-in user a code for an app's host, and sends it there. It redirects only to
// addresses of apps' hosts, and only if the visitor may see the app.
func (s *Service) authorize(w http.ResponseWriter, r *http.Request) error {
	back, err := url.Parse(r.URL.Query().Get("redirect_uri"))
	state := r.URL.Query().Get("state")
	if err != nil || back.Scheme != s.opts.AccessURL.Scheme || back.User != nil || back.Opaque != "" || back.Fragment != "" || len(state) != len(hash("")) {
		return errNoAppAddress()
	}
	label, ok := s.hosts.label(back.Host)
	p, valid := parseLabel(label)
	if !ok || !valid || s.hosts.origin(label) != back.Scheme+"://"+strings.ToLower(back.Host) {
		return errNoAppAddress()
	}
	actor, err := s.opts.Accounts.Authenticate(r)
	if fault.CodeOf(err) == fault.Unauthenticated {
		redirect(w, r, "/login?"+url.Values{"redirect": {r.URL.RequestURI()}}.Encode())
		return nil
	}
	if err != nil {
		return err
	}
	target, err := s.resolve(r.Context(), p)
	if err != nil {
		return err
	}
	if who := (visitor{actor: actor}); !target.ok || !who.may(target.app) {
		s.write(w, r, pageNotFound(s.dashboard("")))
		return nil
	}
	code, err := s.opts.Sealer.Seal(purposeCode, claims{User: actor.UserID, Key: actor.KeyID, Scope: label, State: state, Issued: time.Now().Unix()}, codeLifetime)
	if err != nil {
		return err
	}
	query := withoutParams(back.RawQuery)
	if query != "" {
		query += "&"
	}
	back.RawQuery = query + codeParam + "=" + code.Reveal()
	redirect(w, r, back.String())
	return nil
}

func errNoAppAddress() error {
	return fault.New(fault.Invalid, "This is not the address of an app of this server.")
}

// redeem exchanges a code for the host's cookie, if this browser asked for it, and reloads the page without it.
func (s *Service) redeem(w http.ResponseWriter, r *http.Request, label string) error {
	c, ok := s.claimsIn(purposeCode, r.URL.Query().Get(codeParam), label)
	state := r.CookiesNamed(s.cookieName(stateCookie))
	if !ok || len(state) == 0 || subtle.ConstantTimeCompare([]byte(c.State), []byte(hash(state[0].Value))) != 1 {
		// The code is stale, or this browser did not ask for it. Without it the app asks again.
		redirect(w, r, cleanURI(r.URL))
		return nil
	}
	if err := s.giveToken(w, c); err != nil {
		return err
	}
	s.setCookie(w, stateCookie, "", -time.Second)
	redirect(w, r, cleanURI(r.URL))
	return nil
}

// claimsIn opens a token of this server. ok is false if the token is malformed, has expired, or is for something other than
// scope.
func (s *Service) claimsIn(purpose, token, scope string) (c claims, ok bool) {
	err := s.opts.Sealer.Open(purpose, secret.Token(token), &c)
	return c, err == nil && c.Scope == scope
}

func (s *Service) giveToken(w http.ResponseWriter, c claims) error {
	c.State, c.Issued = "", time.Now().Unix()
	token, err := s.opts.Sealer.Seal(purposeHost, c, tokenLifetime)
	if err != nil {
		return err
	}
	s.setCookie(w, tokenCookie, token.Reveal(), tokenLifetime)
	return nil
}

// hostVisitor returns the visitor at an app's host: a program with a session token in a header, or a browser with the host's
// cookie, which hostVisitor renews.
func (s *Service) hostVisitor(w http.ResponseWriter, r *http.Request, label string) (visitor, error) {
	if token := r.Header.Get(sessionHeader); token != "" {
		actor, err := s.opts.Accounts.AuthenticateToken(r.Context(), secret.Token(token))
		return visitor{actor: actor, means: byHeader}, err
	}
	cookies := r.CookiesNamed(s.cookieName(tokenCookie))
	if len(cookies) != 1 { // another host's page planted the second one
		return visitor{}, nil
	}
	c, ok := s.claimsIn(purposeHost, cookies[0].Value, label)
	if !ok {
		return visitor{}, nil
	}
	who, err := s.visitorOf(r.Context(), c, byCookie)
	if err == nil && who.actor.KeyID != "" && time.Since(time.Unix(c.Issued, 0)) > renewAfter {
		err = s.giveToken(w, c)
	}
	return who, err
}
