package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
)

// openPasses issues readable passes for tests; the deployment's passes are sealed.
type openPasses struct{ deployment string }

func (o openPasses) Issue(p coordinator.Principal) (string, error) {
	data, err := json.Marshal(p)
	return o.deployment + string(data), err
}

func (o openPasses) Redeem(pass string) (p coordinator.Principal, err error) {
	text, ok := strings.CutPrefix(pass, o.deployment)
	if !ok {
		return p, errors.New("not one of this deployment")
	}
	return p, json.Unmarshal([]byte(text), &p)
}

// sessions is an Authorizer that knows which sessions are valid.
type sessions struct {
	policy
}

// end ends a session.
func (s *sessions) end(p coordinator.Principal) { s.set(p.ID, agent(1).ID, true) }

// restarted is an agent with two clients of one user, and a server that can be stopped and replaced.
type restarted struct {
	rules          *sessions
	relay          *relayLog
	server         *coordinator.Server
	agent          *participant
	first, second  *participant
	atAgent        *door
	atFirst, other *door
}

func restart(t *testing.T) *restarted {
	r := &restarted{rules: &sessions{}}
	r.atAgent, r.atFirst, r.other = &door{p: agent(1)}, &door{p: laptop(1)}, &door{p: laptop(2)}
	r.start(t, r.atAgent, r.atFirst, r.other)
	r.agent = join(t, protocol.KindAgent, key(100), client.Options{Dial: r.atAgent.dial})
	r.first = join(t, protocol.KindClient, key(1), client.Options{Dial: r.atFirst.dial})
	r.second = join(t, protocol.KindClient, key(2), client.Options{Dial: r.other.dial})
	for _, p := range []*participant{r.first, r.second} {
		if err := p.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait() // until the agent has been introduced to them, too
	return r
}

// start starts a server behind the given doors.
func (r *restarted) start(t *testing.T, doors ...*door) {
	r.relay = &relayLog{}
	r.server = newServer(t, coordinator.Options{Authorizer: r.rules, Passes: openPasses{"here:"}, Relay: r.relay, LostTimeout: time.Hour})
	for _, d := range doors {
		d.set(r.server, nil)
	}
}

func (r *restarted) stop() {
	for _, d := range []*door{r.atAgent, r.atFirst, r.other} {
		d.set(nil, nil)
	}
	r.server.Close()
	synctest.Wait()
}

func (r *restarted) agentHas(p coordinator.Principal) bool {
	synctest.Wait()
	_, ok := r.agent.node.Load().peer(p.ID)
	return ok
}

// awaitAgent waits until the agent has reconnected.
func (r *restarted) awaitAgent(t *testing.T) {
	t.Helper()
	for !r.agent.Online() {
		time.Sleep(time.Second) // of the bubble
	}
	synctest.Wait()
}

// TestSessionEndsWhileTheServerIsAway: once the server and the agent are back, the connections of an ended session are cut even if
// the client stays away.
func TestSessionEndsWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := restart(t)
		r.stop()
		time.Sleep(5 * time.Minute)
		r.rules.end(laptop(1))
		if !r.agentHas(laptop(1)) {
			t.Fatal("the agent dropped a client while the server was away")
		}
		r.start(t, r.atAgent)
		r.awaitAgent(t)
		if r.agentHas(laptop(1)) {
			t.Error("the agent still has the client whose session has ended")
		}
		if r.relay.has(key(1)) {
			t.Error("the relay admits that client")
		}
		if !r.agentHas(laptop(2)) || !r.relay.has(key(2)) {
			t.Error("the other session of that user was cut too")
		}
	})
}

// TestSessionSurvivesARestart: a valid session keeps its tunnel, whichever end returns first, and a client
// that does not return is lost like any other.
func TestSessionSurvivesARestart(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]func(r *restarted) [2]*door{
		"agent first":  func(r *restarted) [2]*door { return [2]*door{r.atAgent, r.atFirst} },
		"client first": func(r *restarted) [2]*door { return [2]*door{r.atFirst, r.atAgent} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := restart(t)
				r.stop()
				time.Sleep(time.Hour)
				doors := order(r)
				r.start(t, doors[0])
				time.Sleep(time.Minute)
				doors[1].set(r.server, nil)
				time.Sleep(time.Minute)
				r.awaitAgent(t)
				if slices.Contains(r.agent.node.Load().log, "remove") || slices.Contains(r.first.node.Load().log, "remove") {
					t.Fatal("a tunnel was taken away")
				}
				if got := r.server.Stats(); got.Online != 2 || got.Lost != 1 || got.Tunnels != 2 {
					t.Errorf("the new server has %+v, want two online, the second client lost, and both tunnels", got)
				}
				r.first.node.Load().move()
				synctest.Wait()
				if p, _ := r.agent.node.Load().peer(laptop(1).ID); p.Seq != r.first.node.Load().Info().Seq {
					t.Error("the agent does not hear of its client any more")
				}
				time.Sleep(time.Hour)
				if r.agentHas(laptop(2)) || !r.agentHas(laptop(1)) {
					t.Error("want the client that did not return to be gone after the grace, and the other to stay")
				}
			})
		})
	}
}

// TestRevokedAfterARestart: the revocation of a session finds a client that has not come back.
func TestRevokedAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := restart(t)
		r.stop()
		r.start(t, r.atAgent)
		r.awaitAgent(t)
		var found bool
		for _, p := range r.server.Peers() {
			found = found || p.Principal == laptop(1) && !p.Online
		}
		if !found {
			t.Fatalf("the client is not listed: %+v", r.server.Peers())
		}
		if !r.server.Revoke(laptop(1).ID, "signed out") {
			t.Fatal("the client was not there")
		}
		if r.agentHas(laptop(1)) || !r.agentHas(laptop(2)) || r.relay.has(key(1)) {
			t.Error("want the revoked client gone, and only that one")
		}
	})
}

// TestUndecidedSessionsStay: an unavailable database cuts no session, and its later answer counts.
func TestUndecidedSessionsStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := restart(t)
		r.stop()
		r.rules.fail(errors.New("database is away"))
		r.start(t, r.atAgent)
		r.awaitAgent(t)
		time.Sleep(time.Minute)
		if !r.agentHas(laptop(1)) || !r.agentHas(laptop(2)) {
			t.Fatal("a session was cut before it was known whether it stands")
		}
		r.rules.end(laptop(1))
		r.rules.fail(nil)
		time.Sleep(time.Minute)
		if r.agentHas(laptop(1)) || !r.agentHas(laptop(2)) {
			t.Error("the answer that came later was not heard")
		}
	})
}

// TestForgedPasses: an agent cannot bring a client without a pass of this deployment into the table or the relay.
func TestForgedPasses(t *testing.T) {
	t.Parallel()
	passes, foreign := openPasses{"here:"}, openPasses{"elsewhere:"}
	issue := func(o openPasses, p coordinator.Principal) string {
		text, err := o.Issue(p)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	worker := laptop(1)
	worker.Kind = protocol.KindServer
	for name, held := range map[string]protocol.PeerPass{
		"no pass":                  {ID: laptop(1).ID, Key: key(1)},
		"rubbish":                  {ID: laptop(1).ID, Key: key(1), Pass: "here:rubbish"},
		"another deployment's":     {ID: laptop(1).ID, Key: key(1), Pass: issue(foreign, laptop(1))},
		"another client's":         {ID: laptop(1).ID, Key: key(1), Pass: issue(passes, laptop(2))},
		"another key":              {ID: laptop(1).ID, Key: key(2), Pass: issue(passes, laptop(1))},
		"no client's":              {ID: laptop(1).ID, Key: key(1), Pass: issue(passes, worker)},
		"a client that may not":    {ID: laptop(3).ID, Key: key(3), Pass: issue(passes, laptop(3))},
		"a connected client's key": {ID: laptop(4).ID, Key: key(5), Pass: issue(passes, laptop(4))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				relay, rules := &relayLog{}, &policy{}
				rules.set(laptop(3).ID, agent(1).ID, true)
				s := newServer(t, coordinator.Options{Authorizer: rules, Passes: passes, Relay: relay})
				five := connect(t, s, laptop(5), key(5))
				five.expect(nil, "welcome")
				a := connect(t, s, agent(1), key(100))
				a.expect(nil, "welcome")
				a.say(protocol.ClientMessage{Restore: &protocol.Restore{Peers: []protocol.PeerPass{held}}})
				m := a.messages()
				if len(m) != 1 || m[0].Gone == nil || m[0].Gone.ID != held.ID || m[0].Gone.Key != held.Key {
					t.Fatalf("got %q, want that it is gone", names(m))
				}
				if got := s.Stats(); got.Lost != 0 || got.Tunnels != 0 || held.Key != key(5) && relay.has(held.Key) {
					t.Errorf("the table has %+v, the relay admits it: %t", got, relay.has(held.Key))
				}
				five.expect(nil)
			})
		})
	}
	t.Run("not an agent", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, coordinator.Options{Passes: passes})
			c := connect(t, s, laptop(1), key(1))
			c.expect(nil, "welcome")
			c.say(protocol.ClientMessage{Restore: &protocol.Restore{
				Peers: []protocol.PeerPass{{ID: laptop(2).ID, Key: key(2), Pass: issue(passes, laptop(2))}},
			}})
			c.expect(nil, "error invalid")
		})
	})
}

// TestOldAgentsAreNotConfused: an agent of the first version receives no passes.
func TestOldAgentsAreNotConfused(t *testing.T) {
	t.Parallel()
	for version, want := range map[int]int{1: 0, 2: 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, coordinator.Options{Passes: openPasses{}})
			conn, err := s.Dialer(agent(1))(t.Context(), protocol.Hello{Version: version, Key: key(100)})
			if err != nil {
				t.Fatal(err)
			}
			a := newWire(t, conn, agent(1), key(100))
			a.announce(1)
			c := connect(t, s, laptop(1), key(1), agent(1).ID)
			c.announce(1)
			passes := 0
			for _, m := range a.messages() {
				if m.Pass != nil {
					passes++
				}
			}
			if passes != want {
				t.Errorf("version %d: %d passes, want %d", version, passes, want)
			}
			for _, m := range c.messages() {
				if m.Pass != nil {
					t.Error("a client was told a pass")
				}
			}
		})
	}
}

// TestRevokedWhileJoining: a credential is revoked after its check and before the client enters the table.
func TestRevokedWhileJoining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rules := &policy{err: errors.New("database is away")}
		s := newServer(t, coordinator.Options{StillAdmitted: func(ctx context.Context, p coordinator.Principal) error {
			return rules.MaySee(ctx, p, coordinator.Target{})
		}})
		owner := connect(t, s, laptop(2), key(2))
		c := connect(t, s, laptop(1), key(1))
		time.Sleep(time.Minute)
		c.expect(nil, "welcome")
		rules.set(laptop(1).ID, uuid.Nil, true)
		rules.fail(nil)
		time.Sleep(time.Minute)
		c.expect(nil, "error forbidden")
		owner.expect(nil, "welcome")
	})
}

var _ coordinator.Passes = openPasses{}
