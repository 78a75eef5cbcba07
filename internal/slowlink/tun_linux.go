package slowlink

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// openTUN creates a TUN device in a namespace. The device stays there wherever its file is used.
func openTUN(namespace, device string) (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is in another namespace, and ends with the goroutine
		file, err := openTUNHere(namespace, device)
		made <- result{file, err}
	}()
	r := <-made
	return r.file, r.err
}

func openTUNHere(namespace, device string) (*os.File, error) {
	ns, err := os.Open("/var/run/netns/" + namespace)
	if err != nil {
		return nil, fmt.Errorf("open namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter namespace %s: %w", namespace, err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(device)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make device %s: %w", device, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), device), nil
}
