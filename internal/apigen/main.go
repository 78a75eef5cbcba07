// Command apigen writes what the server's source says about the HTTP API: for each route, what its handler reads and answers, and the
// types of both. Package coderd/reference completes it to an OpenAPI document at run time, with the routes that the server really has.
//
//	go run ./internal/apigen > coderd/reference/api.gen.json
package main

import (
	"fmt"
	"os"
)

func main() {
	out, err := generate(".")
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apigen:", err)
		os.Exit(1)
	}
}
