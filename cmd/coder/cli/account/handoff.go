package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// handoff waits for a browser on this machine that is signed in, and takes a session over from it: the server's page
// sends the browser to a loopback port with a code (RFC 8252), which is worth something only together with a secret of
// this process (RFC 7636).
type handoff struct {
	listener net.Listener
	server   *url.URL
	verifier string // the secret
	state    string // proves that the page was opened by this process
	code     chan string
}

// newHandoff listens. It fails where loopback addresses cannot be used; a token can still be pasted then.
func newHandoff(ctx context.Context, server *url.URL) (*handoff, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &handoff{
		listener: listener, server: server, verifier: random(), state: random(), code: make(chan string, 1),
	}, nil
}

// random returns 32 random bytes as the 43 characters that RFC 7636 recommends.
func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// page returns the address of the server's page for this process.
func (h *handoff) page() string {
	sum := sha256.Sum256([]byte(h.verifier))
	page := h.server.JoinPath("cli-auth")
	page.RawQuery = url.Values{
		"port":  {strconv.Itoa(h.listener.Addr().(*net.TCPAddr).Port)},
		"state": {h.state}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])},
	}.Encode()
	return page.String()
}

// session waits until a browser brings a code, and exchanges it for a session. It blocks until then or until ctx ends.
func (h *handoff) session(ctx context.Context, client *sdk.Client) (sdk.LoginResponse, error) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	served := make(chan error, 1)
	go func() { served <- server.Serve(h.listener) }()
	defer server.Close() // also closes the listener
	select {
	case <-ctx.Done():
		return sdk.LoginResponse{}, ctx.Err()
	case err := <-served:
		return sdk.LoginResponse{}, err
	case code := <-h.code:
		// The browser gets its answer while the session is made.
		stop, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		session, err := client.LoginWithCode(ctx, sdk.LoginWithCodeRequest{Code: code, CodeVerifier: h.verifier})
		if down := server.Shutdown(stop); down != nil && !errors.Is(down, context.DeadlineExceeded) {
			err = errors.Join(err, down)
		}
		return session, err
	}
}

// ServeHTTP takes the code, and sends the browser back to the server, which says that the terminal goes on. Anything on
// this machine can connect: only who knows the state is believed.
func (h *handoff) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if r.Method != http.MethodGet || r.URL.Path != "/" || query.Get("code") == "" ||
		subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(h.state)) != 1 {
		http.Error(w, "This address is for the sign-in of a terminal that runs coder login.", http.StatusBadRequest)
		return
	}
	select {
	case h.code <- query.Get("code"):
	default: // the browser repeats its request
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, h.server.JoinPath("cli-auth").String()+"?done=true", http.StatusSeeOther)
}
