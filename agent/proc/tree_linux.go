package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"
)

// SignalSession sends sig to every process of the session that leader began with setsid, also those in process groups
// of their own (jobs of an interactive shell).
func SignalSession(leader int, sig syscall.Signal) error {
	if leader <= 1 {
		return signalGroup(leader, sig) // which refuses
	}
	err := signalGroup(leader, sig)
	entries, readErr := os.ReadDir("/proc")
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	for _, entry := range entries {
		pid, convErr := strconv.Atoi(entry.Name())
		if convErr != nil || pid == os.Getpid() {
			continue
		}
		group, session, ok := groupAndSession(pid)
		if !ok || session != leader || group == leader {
			continue
		}
		if killErr := syscall.Kill(pid, sig); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
			err = errors.Join(err, killErr)
		}
	}
	return err
}

// killFor bounds KillSession.
const killFor = 5 * time.Second

// KillSession kills every process of the session that leader began, repeatedly because they may fork, until none is
// left or five seconds have passed.
func KillSession(leader int) error {
	for began := time.Now(); ; {
		if err := SignalSession(leader, syscall.SIGKILL); err != nil {
			return err
		}
		if !sessionLives(leader) {
			return nil
		}
		if time.Since(began) > killFor {
			return fmt.Errorf("kill session %d: its processes fork faster than they can be killed", leader)
		}
		time.Sleep(time.Millisecond) // a killed process takes a moment to end
	}
}

// sessionLives reports whether the session has a process that is not a zombie.
func sessionLives(leader int) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if _, session, ok := groupAndSession(pid); ok && session == leader && !isZombie(pid) {
			return true
		}
	}
	return false
}

func isZombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	end := bytes.LastIndexByte(stat, ')')
	return err != nil || end < 0 || len(stat) < end+3 || stat[end+2] == 'Z' || stat[end+2] == 'X'
}

// groupAndSession reads the process group and session of pid from its stat line, whose second field is the program's
// name in parentheses and may hold anything.
func groupAndSession(pid int) (group, session int, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, false
	}
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, false
	}
	f := bytes.Fields(stat[end+1:]) // state, parent, group, session …
	if len(f) < 4 {
		return 0, 0, false
	}
	group, err1 := strconv.Atoi(string(f[2]))
	session, err2 := strconv.Atoi(string(f[3]))
	return group, session, err1 == nil && err2 == nil
}

const oomStep = 100 // of a scale of 1000

// PreferAsVictim makes the process pid, and what it starts, a likelier victim than the agent (before Protect) when
// memory runs out. Raising the score needs no privilege.
func PreferAsVictim(pid int) error {
	base, err := oomBase()
	if err != nil {
		return err
	}
	value := strconv.Itoa(min(base+oomStep, 1000))
	err = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(value), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil // it has ended
	}
	return err
}
