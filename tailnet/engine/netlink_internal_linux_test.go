package engine

import (
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestWatchNetlink checks that a change of the default route is heard of, and that the machine is elsewhere then.
func TestWatchNetlink(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	type sighting struct {
		before, after netip.Addr
		err           error
	}
	seen := make(chan sighting, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		var got sighting
		defer func() { seen <- got }()
		run := func(args ...string) {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				t.Errorf("ip %q: %v\n%s", args, err, out)
			}
		}
		if got.err = unix.Unshare(unix.CLONE_NEWNET); got.err != nil {
			return
		}
		for _, at := range []string{"1", "2"} {
			run("link", "add", "at"+at, "type", "veth")
			run("addr", "add", "10.0."+at+".2/24", "dev", "at"+at)
			run("link", "set", "at"+at, "up")
		}
		run("route", "add", "default", "via", "10.0.1.1")
		got.before = source()
		netlink, err := watchNetlink()
		if err != nil {
			got.err = err
			return
		}
		defer netlink.Close()
		run("route", "replace", "default", "via", "10.0.2.1")
		_, got.err = netlink.Read(make([]byte, 1))
		got.after = source()
	}()
	want := sighting{netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("10.0.2.2"), nil}
	if got := testwait.For(t, "a message", seen); got != want {
		t.Errorf("the machine was at %s, and is at %s, %v; want %+v", got.before, got.after, got.err, want)
	}
}

// TestPlace checks when a machine has moved: others see it at another address, or it has just left its former place.
func TestPlace(t *testing.T) {
	t.Parallel()
	home, office := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	begin := time.Now()
	at := place{from: home, own: []netip.Addr{home}, seen: begin}
	for _, step := range []struct {
		what  string
		after time.Duration
		from  netip.Addr
		own   []netip.Addr
		moved bool
	}{
		{"no change", 0, home, []netip.Addr{home}, false},
		{"another link", time.Second, home, []netip.Addr{home, office}, false},
		{"its route", 2 * time.Second, office, []netip.Addr{home, office}, true},
		{"no change after that", 3 * time.Second, office, []netip.Addr{home, office}, false},
		{"the former link is gone", 4 * time.Second, office, []netip.Addr{office}, true},
		{"a link much later", time.Minute, office, []netip.Addr{office, home}, false},
		{"no route", 2 * time.Minute, netip.Addr{}, nil, true},
		{"still none", 3 * time.Minute, netip.Addr{}, nil, true},
		{"home", 4 * time.Minute, home, []netip.Addr{home}, true},
	} {
		if got := at.moved(place{from: step.from, own: step.own, seen: begin.Add(step.after)}); got != step.moved {
			t.Errorf("%s: moved %v", step.what, got)
		}
	}
}
