package rdsauth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/database/rdsauth"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const secretKey = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

// withoutAWS keeps the machine's own configuration out of a test.
func withoutAWS(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		t.Setenv(name, "")
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// checkToken checks a token as RDS does. It is written from the description of signature version 4, without the SDK.
func checkToken(token, endpoint, region, user, accessKey string, now time.Time) error {
	u, err := url.Parse("https://" + token)
	if err != nil {
		return err
	}
	q := u.Query()
	signature := q.Get("X-Amz-Signature")
	q.Del("X-Amz-Signature")
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if err != nil {
		return err
	}
	scope := at.Format("20060102") + "/" + region + "/rds-db/aws4_request"
	for name, want := range map[string]string{
		"Action": "connect", "DBUser": user, "X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Expires": "900", "X-Amz-SignedHeaders": "host",
		"X-Amz-Credential": accessKey + "/" + scope,
	} {
		if got := q.Get(name); got != want {
			return fmt.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if u.Host != endpoint {
		return fmt.Errorf("the token is for %s, want %s", u.Host, endpoint)
	}
	if age := now.Sub(at); age < -time.Minute || age > 15*time.Minute {
		return fmt.Errorf("the token is %s old", age)
	}
	hash := func(text string) string { sum := sha256.Sum256([]byte(text)); return hex.EncodeToString(sum[:]) }
	request := strings.Join([]string{"GET", "/", q.Encode(), "host:" + endpoint, "", "host", hash("")}, "\n")
	key := []byte("AWS4" + secretKey)
	for _, part := range append(strings.Split(scope, "/"), strings.Join([]string{"AWS4-HMAC-SHA256", q.Get("X-Amz-Date"), scope, hash(request)}, "\n")) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	if hex.EncodeToString(key) != signature {
		return errors.New("the signature is wrong")
	}
	return nil
}

// front is a PostgreSQL that accepts tokens, over TLS: it checks the token and passes the session to the real one.
type front struct {
	listener net.Listener
	tls      *tls.Config
	socket   string
	check    func(token string) error
	admitted atomic.Int64
	refused  atomic.Int64
	sessions sync.WaitGroup
}

func (f *front) serve() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.sessions.Go(func() {
			defer conn.Close()
			f.session(conn)
		})
	}
}

func (f *front) session(raw net.Conn) {
	if _, err := pgproto3.NewBackend(raw, raw).ReceiveStartupMessage(); err != nil { // asks for TLS
		return
	}
	if _, err := raw.Write([]byte("S")); err != nil {
		return
	}
	conn := tls.Server(raw, f.tls)
	client := pgproto3.NewBackend(conn, conn)
	startup, err := client.ReceiveStartupMessage()
	if err != nil {
		return
	}
	server, err := net.Dial("unix", f.socket)
	if err != nil {
		return
	}
	defer server.Close()
	if cancel, ok := startup.(*pgproto3.CancelRequest); ok {
		if text, err := cancel.Encode(nil); err == nil {
			server.Write(text)
		}
		return
	}
	client.Send(&pgproto3.AuthenticationCleartextPassword{})
	if client.Flush() != nil || client.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
		return
	}
	message, err := client.Receive()
	if err != nil {
		return
	}
	password, ok := message.(*pgproto3.PasswordMessage)
	if !ok || f.check(password.Password) != nil {
		f.refused.Add(1)
		client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "PAM authentication failed"})
		client.Flush()
		return
	}
	f.admitted.Add(1)
	text, err := startup.(*pgproto3.StartupMessage).Encode(nil)
	if err != nil {
		return
	}
	if _, err := server.Write(text); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(conn, server)
		conn.Close()
	})
	io.Copy(server, conn)
	server.Close()
	back.Wait()
}

// newFront returns the front of a new database, and the database's URL through it.
func newFront(t *testing.T) (*front, string) {
	t.Helper()
	u, err := url.Parse(dbtest.EmptyURL(t))
	if err != nil {
		t.Fatal(err)
	}
	certificates := httptest.NewTLSServer(http.NotFoundHandler()) // lends its certificate
	t.Cleanup(certificates.Close)
	root := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(root, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificates.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{listener: listener, tls: &tls.Config{Certificates: certificates.TLS.Certificates}, socket: u.Query().Get("host") + "/.s.PGSQL.5432"}
	t.Cleanup(func() { listener.Close(); f.sessions.Wait() })
	f.check = func(token string) error {
		return checkToken(token, listener.Addr().String(), "eu-central-1", "coder", "AKIDEXAMPLE", time.Now())
	}
	u.Host, u.RawQuery = listener.Addr().String(), url.Values{"sslmode": {"verify-full"}, "sslrootcert": {root}}.Encode()
	return f, u.String()
}

// TestSignIn checks that a server opens and migrates a database that admits tokens only, that each connection brings a token, and that another
// secret, region or user is refused.
func TestSignIn(t *testing.T) {
	withoutAWS(t)
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
	f, address := newFront(t)
	go f.serve() // ends with the listener
	source := func() database.Source {
		tokens, err := rdsauth.New(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		return database.Source{URL: address, Password: tokens.Password}
	}
	quiet := slog.New(slog.DiscardHandler)
	hold, err := source().Occupy(t.Context(), quiet, 0)
	if err != nil {
		t.Fatalf("occupy: %v", err)
	}
	defer hold.Close()
	db, err := source().Open(t.Context(), quiet)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer db.Close()
	before := f.admitted.Load()
	db.Pool.Reset()
	if _, err := db.GetDefaultOrganization(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := f.admitted.Load() - before; n != 1 || f.refused.Load() != 0 {
		t.Errorf("a new connection brought %d tokens, and %d were refused", n, f.refused.Load())
	}
	for name, value := range map[string]string{"AWS_SECRET_ACCESS_KEY": "another", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "OTHER"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			_, err := source().Open(t.Context(), quiet)
			if fault.CodeOf(err) != fault.Invalid || f.refused.Load() == 0 {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "X-Amz") {
				t.Errorf("the fault tells the token: %v", err)
			}
		})
	}
}

// TestRenewal checks that a token is signed with credentials that are valid, fetched again when they have expired, and that an outage of their
// source is reported and passes.
func TestRenewal(t *testing.T) {
	withoutAWS(t)
	t.Setenv("AWS_REGION", "eu-central-1")
	var fetched, away atomic.Int64
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() == 1 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		expires := time.Now().Add(-time.Minute) // at once
		if n := fetched.Add(1); n == 3 {
			expires = time.Now().Add(6 * time.Hour)
		}
		fmt.Fprintf(w, `{"AccessKeyId": "KEY%d", "SecretAccessKey": %q, "Token": "session", "Expiration": %q}`, fetched.Load(), secretKey, expires.UTC().Format(time.RFC3339))
	}))
	defer source.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", source.URL)
	tokens, err := rdsauth.New(t.Context(), "postgres://ada@db.example.com:5433/coder?sslmode=require")
	if err != nil {
		t.Fatal(err)
	}
	if n := fetched.Load(); n != 0 {
		t.Errorf("New fetched %d credentials", n)
	}
	check := func(key string) {
		t.Helper()
		token, err := tokens.Password(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := checkToken(token, "db.example.com:5433", "eu-central-1", "ada", key, time.Now()); err != nil {
			t.Errorf("token with %s: %v", key, err)
		}
		if !strings.Contains(token, "X-Amz-Security-Token=session") {
			t.Error("the token lacks the session's")
		}
	}
	check("KEY1")
	away.Store(1)
	if _, err := tokens.Password(t.Context()); fault.CodeOf(err) != fault.Unavailable || strings.Contains(err.Error(), secretKey) {
		t.Errorf("without credentials: %v", err)
	}
	away.Store(0)
	check("KEY2")
	check("KEY3")
	check("KEY3") // still valid
}

// TestRefused checks which URLs are refused, and that the fault says what to do.
func TestRefused(t *testing.T) {
	withoutAWS(t)
	for name, row := range map[string]struct{ url, want string }{
		"not a URL":     {"postgres://db:port", "cannot be read"},
		"plain":         {"postgres://ada@db.c1.us-east-1.rds.amazonaws.com/coder?sslmode=disable", "sslmode=verify-full"},
		"perhaps plain": {"postgres://ada@db.c1.us-east-1.rds.amazonaws.com/coder", "sslmode=verify-full"},
		"socket":        {"postgres://ada@/coder?host=/tmp&sslmode=require", "sslmode=verify-full"},
		"two hosts":     {"postgres://ada@a.rds.amazonaws.com,b.rds.amazonaws.com/coder?sslmode=require", "endpoint of the cluster"},
		"no region":     {"postgres://ada@db.example.com/coder?sslmode=require", "AWS_REGION"},
	} {
		if _, err := rdsauth.New(t.Context(), row.url); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
	for host, region := range map[string]string{
		"db.c1.eu-west-3.rds.amazonaws.com":             "eu-west-3",
		"db.cluster-c1.cn-north-1.rds.amazonaws.com.cn": "cn-north-1",
	} {
		tokens, err := rdsauth.New(t.Context(), "postgres://ada@"+host+"/coder?sslmode=verify-full")
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		token, err := tokens.Password(t.Context())
		if err == nil {
			err = checkToken(token, host+":5432", region, "ada", "AKIDEXAMPLE", time.Now())
		}
		if err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}
