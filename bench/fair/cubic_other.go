//go:build !linux

package main

import "errors"

func useCUBIC(int) error { return errors.New("this system has no network namespaces") }
