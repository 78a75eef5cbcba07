// Command apigen writes what the server's source says about the HTTP API: for each route, what its handler reads and
// answers, and the types of both. Package coderd/reference completes it to an OpenAPI document at run time, with the
// routes that the server really has.
//
//	apigen [-C folder] > coderd/reference/api.gen.json
//
// The folder is the tree's; -C .. if it runs in tools.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("C", ".", "folder of the source tree")
	flag.Parse()
	out, err := generate(*root)
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apigen:", err)
		os.Exit(1)
	}
}
