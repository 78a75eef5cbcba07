package mesh_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server whose node has not joined the mesh yet.
type world struct {
	*coderdtest.Server
	*mesh.Service
}

func newWorld(t testing.TB) *world {
	t.Helper()
	s := coderdtest.New(t)
	return &world{s, s.Mesh}
}

// start joins the server's node, which answers every RPC with "rpc".
func (w *world) start(t testing.TB) {
	t.Helper()
	if err := w.Service.Start(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "rpc") })); err != nil {
		t.Fatal(err)
	}
}

// joinAgent joins the agent of ann's workspace "dev", and returns its id.
func (w *world) joinAgent(t testing.TB) (*coderdtest.Member, uuid.UUID) {
	t.Helper()
	_, id := w.RunningRow("ann", "dev")
	return w.Join(coderdtest.AsAgent(coderdtest.Token(id).Reveal())), id
}

func (w *world) joinUser(t testing.TB, name string) *coderdtest.Member {
	t.Helper()
	return w.Join(coderdtest.AsUser(w.Token(name)))
}

// joinRack joins a provisioner of the organization.
func (w *world) joinRack(t testing.TB, inbound tailnet.Inbound) *coderdtest.Member {
	t.Helper()
	return w.joinRackAs(t, "rack-1", inbound)
}

func (w *world) joinRackAs(t testing.TB, name string, inbound tailnet.Inbound) *coderdtest.Member {
	t.Helper()
	return w.Join(coderdtest.Joining{Kind: protocol.KindProvisioner, Header: coderdtest.ProvisionerHeader(name, sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal()), Inbound: inbound})
}

// dial connects this server's node to port 8080 of an agent that is there. On a busy machine one attempt may take longer than users wait.
func (w *world) dial(t testing.TB, id uuid.UUID) (conn net.Conn) {
	t.Helper()
	testwait.Until(t, "the agent answers", func() (err error) {
		conn, err = w.DialAgent(t.Context(), id, 8080)
		return err
	})
	return conn
}

// capitals echoes its input in capitals.
func capitals(conn net.Conn) {
	if data, err := io.ReadAll(conn); err == nil {
		io.WriteString(conn, strings.ToUpper(string(data)))
	}
}

// converse sends text to an echo and checks the answer.
func converse(t testing.TB, conn net.Conn) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(coderdtest.Patience))
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("%T has no CloseWrite", conn)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || string(answer) != "HELLO" {
		t.Fatalf("answer %q, %v", answer, err)
	}
}

// ends reads a connection until it ends.
func ends(t testing.TB, conn net.Conn) {
	t.Helper()
	deadline := time.Now().Add(coderdtest.Patience)
	conn.SetReadDeadline(deadline)
	if _, err := io.Copy(io.Discard, conn); !time.Now().Before(deadline) {
		t.Fatalf("the connection is still open: %v", err)
	}
}
