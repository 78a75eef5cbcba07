package slowlink

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// In runs f on a thread in a namespace. Sockets and devices that f makes stay there, wherever they are used.
func In(namespace string, f func() error) error {
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is in another namespace, and ends with the goroutine
		made <- enter(namespace, f)
	}()
	return <-made
}

func enter(namespace string, f func() error) error {
	ns, err := os.Open("/var/run/netns/" + namespace)
	if err != nil {
		return fmt.Errorf("open namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", namespace, err)
	}
	return f()
}

// openTUN creates a TUN device in a namespace.
func openTUN(namespace, device string) (tun *os.File, err error) {
	err = In(namespace, func() (err error) {
		tun, err = openTUNHere(device)
		return err
	})
	return tun, err
}

func openTUNHere(device string) (*os.File, error) {
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
