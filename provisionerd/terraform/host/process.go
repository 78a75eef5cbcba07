package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/ask"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// requestTimeout is how long a request may take to arrive.
const requestTimeout = 10 * time.Second

// processServer answers one build's requests.
type processServer struct {
	slot     *Slot
	id       uuid.UUID
	listener *net.UnixListener
	stop     context.CancelFunc
	over     sync.WaitGroup
}

// offerProcess lets a workspace build request its workspace's process, with variables that it adds to env. Called with
// s.mu held.
func (s *Slot) offerProcess(f Facts, env map[string]string) error {
	id, err := uuid.FromBytes(f.Metadata.GetWorkspaceId())
	if !f.Build || err != nil || id == uuid.Nil {
		return nil //nolint:nilerr // not a workspace's build
	}
	if s.process == nil {
		p, err := s.serveProcess(id)
		if err != nil {
			return err
		}
		s.process = p
	}
	env[ask.ProgramVariable], env[ask.SocketVariable] = sandbox.InnerProgram, s.processSocket()
	if s.host.isolation.bubblewrap == "" {
		env[ask.ProgramVariable] = s.host.opts.Worker[0]
	}
	if f.Transition != "start" && s.host.isolation.confined() {
		// The daemon ends and removes what earlier versions of the starter "process" made; their own scripts find
		// nothing here.
		env["CODER_WORKSPACES_DIR"] = "/nonexistent"
	}
	return nil
}

func (s *Slot) serveProcess(id uuid.UUID) (*processServer, error) {
	name := s.processSocket()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("offer workspace process: %w", err)
	}
	if err = os.Chmod(name, 0o600); err == nil {
		err = s.Own(name)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("offer workspace process: %w", err), listener.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &processServer{slot: s, id: id, listener: listener, stop: cancel}
	p.over.Go(func() { p.run(ctx) })
	return p, nil
}

// closeProcess ends the offer. Called with s.mu held.
func (s *Slot) closeProcess() error {
	if s.process == nil {
		return nil
	}
	p := s.process
	s.process = nil
	p.stop()
	err := p.listener.Close()
	p.over.Wait()
	if err != nil {
		return fmt.Errorf("close workspace process's socket: %w", err)
	}
	return nil
}

func (p *processServer) run(ctx context.Context) {
	for {
		conn, err := p.listener.AcceptUnix()
		if err != nil {
			return
		}
		// One request at a time, because all are about one process.
		if err := p.answer(ctx, conn); err != nil {
			p.slot.host.log.Warn("cannot answer a job about its workspace's process", "err", err)
		}
	}
}

func (p *processServer) answer(ctx context.Context, conn *net.UnixConn) error {
	defer conn.Close()
	release := context.AfterFunc(ctx, func() { conn.Close() })
	defer release()
	if err := conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	err := p.do(ctx, conn)
	answer := ask.Answer{}
	if err != nil {
		answer.Error = err.Error()
	}
	line, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if err := conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

func (p *processServer) do(ctx context.Context, conn *net.UnixConn) error {
	want := p.slot.uid
	if want == 0 {
		want = os.Geteuid()
	}
	uid, err := sandbox.PeerAccount(conn)
	if err != nil {
		return err
	}
	if uid != want {
		return errors.New("another account asks than that of the job")
	}
	line, err := bufio.NewReader(io.LimitReader(conn, ask.MaxRequest)).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	r, err := ask.Parse(line)
	if err != nil {
		return err
	}
	spaces := spaces{p.slot.host}
	if !r.Start {
		return spaces.stop(p.id)
	}
	return spaces.start(ctx, p.id, r)
}
