package laptop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// maxSaid bounds what is shown of what the keeper has said, in bytes.
const maxSaid = 4 << 10

// Stage is what this process is for.
type Stage string

const (
	Up     Stage = ""       // the command of the user
	Keeper Stage = "keeper" // the keeper, which the command has started and left
	Server Stage = "server"

	stageEnv = "CODER_CONNECT_STAGE"
)

// CurrentStage returns what this process is for.
func CurrentStage() Stage {
	if os.Getenv(setupEnv) != "" {
		return Server
	}
	return Stage(os.Getenv(stageEnv))
}

// Background starts the keeper in the background, and returns when the server is ready, or with what it has said when
// it ended. It waits until then, or until ctx ends, and writes to progress what they say if that takes longer than
// usual.
func Background(ctx context.Context, dir string, args []string, progress io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before, err := log.Stat()
	if err != nil {
		return err
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), stageEnv+"="+string(Keeper))
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	if connected(ready, &news{log: log, from: before.Size()}, progress) {
		return cmd.Process.Release()
	}
	_ = cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	said := make([]byte, maxSaid)
	n, err := log.ReadAt(said, before.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return fault.New(fault.Unavailable, "cannot connect").WithDetail("%s", strings.TrimSpace(string(said[:n])))
}

// usual is how long it takes to connect, at most, unless something is wrong.
const usual = 3 * time.Second

// connected waits until the keeper reports that the server is ready, or ends. It tells what they say after the usual
// time.
func connected(ready io.Reader, said *news, progress io.Writer) bool {
	answer := make(chan int, 1)
	go func() {
		n, _ := ready.Read(make([]byte, 1)) // it ends without a byte if the keeper ends
		answer <- n
	}()
	slow := time.NewTimer(usual)
	defer slow.Stop()
	for printed := false; ; {
		select {
		case n := <-answer:
			return n == 1
		case <-slow.C:
			if !printed {
				fmt.Fprintln(progress, "Still connecting. Interrupt to give up.")
			}
			printed = true
			fmt.Fprint(progress, said.next())
			slow.Reset(time.Second)
		}
	}
}

// news are the lines of a log that were not read yet.
type news struct {
	log  io.ReaderAt
	from int64
}

// next returns the complete lines that were written since the last call, maxSaid bytes of them at most.
func (n *news) next() string {
	text := make([]byte, maxSaid)
	count, _ := n.log.ReadAt(text, n.from) // at its end the log has no more lines yet
	end := bytes.LastIndexByte(text[:count], '\n') + 1
	if end == 0 && count == maxSaid {
		end = count
	}
	n.from += int64(end)
	return string(text[:end])
}

// KeeperReady returns the file that Background waits for.
func KeeperReady() *os.File { return os.NewFile(3, "ready") }
