// Package main is a program that prints its version.
package main

import (
	"fmt"

	"github.com/codermesh/codermesh/v2/internal/buildinfo"
)

func main() { fmt.Print(buildinfo.Version()) }
