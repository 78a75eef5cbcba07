package mesh_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// TestGoneProvisionersAreForgotten checks that a server does not remember each daemon that ever joined it: containers have new names. Daemons that
// are connected, and those that have just asked to join, stay.
func TestGoneProvisionersAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	w.joinRack(t, tailnet.InboundNone)
	for i := range 5 {
		pod := w.joinRackAs(t, fmt.Sprint("pod-", i), tailnet.InboundNone)
		welcome, err := pod.Client.Welcome(t.Context())
		if err = errors.Join(err, pod.Client.Close()); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "it has left", func() error {
			_, known := w.CallingProvisioner(tailnet.Addr(welcome.ID))
			return testwait.Unless(!known, "it is known")
		})
	}
	w.joinRackAs(t, "rack-2", tailnet.InboundNone)
	if n := w.Provisioners(); n != 7 {
		t.Errorf("%d provisioners are known, want the 7 that have joined", n)
	}
	w.AgeProvisioners(25 * time.Hour)
	w.joinRackAs(t, "rack-3", tailnet.InboundNone)
	if n := w.Provisioners(); n != 3 {
		t.Errorf("%d provisioners are known, want the 3 that are connected", n)
	}
}
