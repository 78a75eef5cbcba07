//go:build linux

package region_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/region"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// A code works once, at the proxy that it is for, in the browser that asked for it.
func TestCodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wildcard)
	ann := w.browser("ann")
	var withCode string
	follow := ann.CheckRedirect
	ann.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Query().Has("coder_app_code") {
			withCode = r.URL.String()
			return http.ErrUseLastResponse
		}
		return follow(r, via)
	}
	ann.open(host("code") + "/")
	u, err := url.Parse(withCode)
	if err != nil || withCode == "" {
		t.Fatalf("no code: %v (%v)", err, ann.via)
	}
	other, _, _, _ := w.runProxy("us", "*.us.example.com")
	var state string
	for _, c := range ann.jar.Cookies(u) {
		if c.Name == "coder_app_state" {
			state = c.Value
		}
	}
	exchange := appproxy.Exchange{Place: place("code"), Code: secret.Token(u.Query().Get("coder_app_code")), State: hashed(state)}
	redeem := func(token secret.Token, x appproxy.Exchange) secret.Token {
		t.Helper()
		var resp region.RedeemResponse
		if err := w.asProxy(token).PostAsProxy(t.Context(), "app-codes", x, &resp); err != nil {
			t.Fatal(err)
		}
		return resp.Token
	}
	wrong := exchange
	wrong.State = hashed("guess")
	elsewhere := exchange
	elsewhere.Place = place("other")
	path := exchange
	path.ByPath = true
	if redeem(other, exchange) != "" || redeem(w.token, wrong) != "" || redeem(w.token, elsewhere) != "" || redeem(w.token, path) != "" {
		t.Error("a code is worth something elsewhere")
	}
	token := redeem(w.token, exchange)
	if token == "" {
		t.Fatal("the code is worth nothing")
	}
	if redeem(w.token, exchange) != "" {
		t.Error("a code works twice")
	}
	// So is the token that it was exchanged for.
	ask := func(proxy secret.Token, slug string, token secret.Token) bool {
		t.Helper()
		resp := w.visit(proxy, slug, token, uuid.New())
		return resp.Answer.App != nil || resp.Visa != "" || resp.Answer.SignedIn
	}
	if !ask(w.token, "code", token) || ask(other, "code", token) || ask(w.token, "other", token) || ask(w.token, "code", token+"A") {
		t.Error("a token is worth something elsewhere, or nothing here")
	}
	// Neither is a session a proof at a proxy.
	for _, kind := range []appproxy.ProofKind{appproxy.BySession, appproxy.ByDashboard, appproxy.ByPath} {
		var resp region.VisitResponse
		req := region.VisitRequest{Question: appproxy.Question{Place: place("code"), ByPath: true, Proof: appproxy.Proof{Kind: kind, Token: secret.Token(w.Token("ann"))}}, Node: uuid.New()}
		if err := w.asProxy(w.token).PostAsProxy(t.Context(), "visits", req, &resp); err != nil || resp.Answer.App != nil || resp.Answer.SignedIn {
			t.Errorf("%s: %+v, %v", kind, resp.Answer, err)
		}
	}
	// The server sends browsers to addresses of apps only.
	for _, back := range []string{
		"http://evil.example/", "http://code--main--dev--ann.evil.example/", "https://code--main--dev--ann.eu.example.com/", host("code") + ":81/", w.proxy.String() + "/",
		w.URL.String() + "/@ann/dev.main/apps/code/", "http://localhost/@ann/dev.main/apps/code/", "http://x@" + w.proxy.Host + "/@ann/dev.main/apps/code/", "//" + w.proxy.Host + "/@ann/dev.main/apps/code/",
	} {
		if status, _ := w.browser("ann").open(w.URL.String() + appproxy.AuthPath + "?" + url.Values{"redirect_uri": {back}, "state": {exchange.State}}.Encode()); status != http.StatusBadRequest {
			t.Errorf("redirected to %s: %d", back, status)
		}
	}
}

func hashed(state string) string {
	sum := sha256.Sum256([]byte(state))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func place(slug string) appproxy.Place {
	return appproxy.Place{Owner: "ann", Workspace: "dev", Agent: "main", Slug: slug}
}

func (w *world) asProxy(token secret.Token) *sdk.Client {
	return sdk.New(w.URL, "", sdk.Options{Header: http.Header{sdk.ProxyTokenHeader: {token.Reveal()}}})
}

// visit asks the server as a proxy about a visitor who shows an app's token, for a node of the proxy.
func (w *world) visit(proxy secret.Token, slug string, token secret.Token, node uuid.UUID) (resp region.VisitResponse) {
	w.t.Helper()
	req := region.VisitRequest{Question: appproxy.Question{Place: place(slug), Proof: appproxy.Proof{Kind: appproxy.ByHost, Token: token}}, Node: node}
	if err := w.asProxy(proxy).PostAsProxy(w.t.Context(), "visits", req, &resp); err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// forge returns an altered copy of a visa to the world's agent, signed with a key.
func (w *world) forge(shown secret.Token, edit func(*visa.Visa), key []byte) secret.Token {
	w.t.Helper()
	v, err := visa.Open(coderdtest.Token(w.agent).Hash(), shown, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	edit(&v)
	token, err := visa.Sign(key, v)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// joinAsProxy joins the mesh with the proxy's token, as a thief of the token would.
func (w *world) joinAsProxy() *coderdtest.Member {
	w.t.Helper()
	return w.Join(coderdtest.Joining{Kind: protocol.KindProxy, Header: http.Header{sdk.ProxyTokenHeader: {w.token.Reveal()}}, Inbound: tailnet.InboundNone}).Joined()
}

// A proxy's token alone reaches no agent. With a visitor's consent it reaches the visited port of that agent, for as long as the visit lasts.
func TestStolenToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wildcard)
	ann := w.browser("ann")
	if status, _ := ann.open(host("code") + "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	thief, second := w.joinAsProxy(), w.joinAsProxy()
	if err := thief.Client.Subscribe(t.Context(), w.agent); fault.CodeOf(err) != fault.NotFound {
		t.Fatalf("a proxy without a visa, while another node of it has one: %v", err)
	}
	_, agent2 := w.RunningRow("ann", "second")
	w.runAgent(agent2)
	token := secret.Token(ann.cookie("code"))
	mine, theirs := w.visit(w.token, "code", token, thief.Node.ID()), w.visit(w.token, "code", token, second.Node.ID())
	if mine.Visa == "" || theirs.Visa == "" {
		t.Fatalf("visits %+v and %+v", mine, theirs)
	}
	thief.Client.Unsubscribe(w.agent)
	if err := thief.Client.Subscribe(t.Context(), w.agent); err != nil {
		t.Fatalf("with a visa: %v", err)
	}
	if err := thief.Client.Subscribe(t.Context(), agent2); fault.CodeOf(err) != fault.NotFound {
		t.Fatalf("another agent: %v", err)
	}
	if got := w.send(thief, meshport.Visit, w.agent, mine.Visa); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Fatalf("with a visa: %q", got)
	}
	key := coderdtest.Token(w.agent).Hash()
	forged := func(edit func(*visa.Visa), key []byte) secret.Token { return w.forge(mine.Visa, edit, key) }
	for name, shown := range map[string]secret.Token{
		"none":             "",
		"another node's":   theirs.Visa,
		"tampered":         mine.Visa[:len(mine.Visa)-4] + "AAAA",
		"the thief's own":  forged(func(*visa.Visa) {}, []byte("guess")),
		"another agent's":  forged(func(v *visa.Visa) { v.Agent = agent2 }, key),
		"expired":          forged(func(v *visa.Visa) { v.Expires = time.Now().Add(-visa.Leeway - time.Second).Unix() }, key),
		"of another token": forged(func(*visa.Visa) {}, coderdtest.Token(agent2).Hash()),
	} {
		if got := w.send(thief, meshport.Visit, w.agent, shown); got != "" {
			t.Errorf("%s: the app answers %q", name, got)
		}
	}
	// Other ports of the agent stay closed, its own services and the workspace's alike.
	appPort, err := netip.ParseAddrPort(strings.TrimPrefix(w.app.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint16{meshport.Session, meshport.Terminal, meshport.AgentRPC, appPort.Port()} {
		if conn, err := thief.Dial(w.agent, port, 2*time.Second); err == nil {
			conn.Close()
			t.Errorf("port %d is open", port)
		}
	}
	// Who has visited is not asked again with another node's visit.
	var resp region.VisitResponse
	err = w.asProxy(w.token).PostAsProxy(t.Context(), "visits", region.VisitRequest{Visit: mine.Visit, Node: second.Node.ID()}, &resp)
	if fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("another node renews a visit: %+v, %v", resp, err)
	}
	// The visit ends: the introduction does too.
	w.Exec(`UPDATE region_visas SET expires_at = now()`)
	testwait.Until(t, "the end of the introduction", func() error {
		peer, _, ok := thief.Client.Peer(w.agent)
		return testwait.Unless(!ok, "the thief still knows %+v", peer)
	})
	// A replaced token is worth nothing.
	if _, err := w.As("olga").PatchWorkspaceProxy(t.Context(), "eu", sdk.PatchWorkspaceProxyRequest{RegenerateToken: true}); err != nil {
		t.Fatal(err)
	}
	err = w.asProxy(w.token).PostAsProxy(t.Context(), "visits", region.VisitRequest{Visit: mine.Visit, Node: thief.Node.ID()}, &resp)
	if fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("a replaced token: %v", err)
	}
	if code := coderdtest.Join(t, w.URL, coderdtest.Joining{Kind: protocol.KindProxy, Header: http.Header{sdk.ProxyTokenHeader: {w.token.Reveal()}}}).Refusal(); code != fault.Unauthenticated {
		t.Errorf("a replaced token on the mesh: %v", code)
	}
}

// send shows a visa to an agent, and returns the beginning of the app's answer; "" if there is none.
func (w *world) send(from *coderdtest.Member, port uint16, agent uuid.UUID, shown secret.Token) string {
	w.t.Helper()
	conn, err := from.Dial(agent, port, testwait.Patience)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testwait.Patience)); err != nil {
		w.t.Fatal(err)
	}
	if err := visa.WriteRequest(conn, visa.OpenPort, shown); err != nil {
		return ""
	}
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n"); err != nil {
		return ""
	}
	answer, err := io.ReadAll(conn)
	if isTimeout(err) {
		w.t.Fatalf("the agent neither answers nor refuses: %v", err)
	}
	return string(answer)
}
