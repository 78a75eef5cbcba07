package main

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if id, ok := meshArgument(); ok {
		if err := serveMesh(id, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestServerOfThreeDies introduces users to agents at other servers, and kills one of three servers: everyone is at the others afterwards, once,
// and those who were introduced still learn what changes.
func TestServerOfThreeDies(t *testing.T) {
	t.Parallel()
	const agents, users = 300, 60
	c, err := startCluster(t.Context(), meshServers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.join(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	if _, err := c.introduce(t.Context(), users); err != nil {
		t.Fatal(err)
	}
	if err := c.pairs(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost, err := c.servers[0].state()
	if err != nil {
		t.Fatal(err)
	}
	if lost.Online < agents/meshServers/2 {
		t.Fatalf("the balancer led %d participants to the first server", lost.Online)
	}
	if err := c.kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.back(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.pairs(t.Context()); err != nil {
		t.Fatal(err)
	}
}
