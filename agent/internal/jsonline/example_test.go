package jsonline_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"github.com/codermesh/codermesh/v2/agent/internal/jsonline"
)

// A program asks a daemon on the same machine one question.
func ExampleAsk() {
	type question struct{ Name string }
	type answer struct{ Greeting string }

	dir, err := os.MkdirTemp("", "jsonline")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var q question
		if jsonline.Read(conn, 1<<10, &q) == nil {
			_ = jsonline.Write(conn, answer{"hello, " + q.Name}) // the program may have gone
		}
	}()

	var a answer
	if err := jsonline.Ask(context.Background(), path, 1<<10, question{"mesh"}, &a); err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Greeting)
	// Output: hello, mesh
}
