package mesh

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/tailnet"
)

func TestKnownClients(t *testing.T) {
	t.Parallel()
	var k knownClients
	ada, eve := uuid.New(), uuid.New()
	client := func(user uuid.UUID, from string) coordinator.Principal {
		return coordinator.Principal{Kind: protocol.KindClient, ID: uuid.MustParse("11111111-1111-4111-8111-111111111111"), Subject: user, Addr: netip.MustParseAddr(from)}
	}
	addr := tailnet.Addr(client(ada, "192.0.2.1").ID)
	begin := time.Now()
	if _, ok := k.peer(addr); ok {
		t.Error("a client that never joined is known")
	}
	k.note(client(ada, "192.0.2.1"), begin)
	k.note(client(eve, "192.0.2.66"), begin.Add(time.Second))
	if p, ok := k.peer(addr); !ok || p.User != ada || p.Addr.String() != "192.0.2.1" {
		t.Errorf("another user takes the client's place: %+v, %v", p, ok)
	}
	k.note(client(ada, "192.0.2.2"), begin.Add(2*time.Second))
	if p, _ := k.peer(addr); p.Addr.String() != "192.0.2.2" {
		t.Errorf("the client moved: %+v", p)
	}
	other := client(eve, "192.0.2.66")
	other.ID = uuid.New()
	k.note(other, begin.Add(3*time.Second+knownClientAge))
	if p, ok := k.peer(addr); ok {
		t.Errorf("still remembered after %s: %+v", knownClientAge, p)
	}
}
