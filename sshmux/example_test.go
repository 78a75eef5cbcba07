package sshmux_test

import (
	"fmt"
	"log"
	"net"

	"github.com/codermesh/codermesh/v2/sshmux"
)

// The SSH library's client runs a command on a server that speaks sshmux. In the product, a mesh stream replaces the pipe.
func ExampleClient() {
	near, far := net.Pipe()
	server := sshmux.New(far, sshmux.Options{Server: true})
	go func() {
		for incoming := range server.Channels() {
			session, err := incoming.Accept()
			if err != nil {
				return
			}
			for request := range session.Requests() {
				if request.Reply(request.Type == "exec") != nil || request.Type != "exec" {
					continue
				}
				fmt.Fprintln(session, "ran:", string(request.Payload[4:])) // after the command's length
				session.SendRequest("exit-status", false, []byte{0, 0, 0, 0})
				session.Close()
			}
		}
	}()

	client := sshmux.Client(near, sshmux.Options{})
	defer server.Wait()
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	output, err := session.Output("make test")
	fmt.Printf("%s%v\n", output, err)
	// Output:
	// ran: make test
	// <nil>
}
