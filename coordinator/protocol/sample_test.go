package protocol_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// key returns a node key for tests that do not encrypt anything.
func key(n uint64) tailnet.PublicKey { return sha256.Sum256(fmt.Appendf(nil, "key %d", n)) }

// id is an id for tests.
func id(what string, n int) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s %d", what, n))
}

// agent describes the node of an agent.
func agent(n int) tailnet.NodeInfo { return node(id("agent", n), key(uint64(n))) }

// laptop describes the node of a client, whose id follows from its key.
func laptop(n uint64) tailnet.NodeInfo { return node(tailnet.ClientID(key(n)), key(n)) }

func node(id uuid.UUID, k tailnet.PublicKey) tailnet.NodeInfo {
	n := tailnet.NodeInfo{
		ID: id, Key: k, Region: 7, Seq: 1, Measured: true, Endpoints: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:2")},
	}
	copy(n.Disco[:], "disco 1")
	return n
}

func ref(id uuid.UUID) *protocol.PeerRef { return &protocol.PeerRef{ID: id} }

func encoded(m any) string {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(data)
}
