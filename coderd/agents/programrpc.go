package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/yamux"
	"google.golang.org/protobuf/encoding/protowire"
	"storj.io/drpc"
	"storj.io/drpc/drpcerr"
	"storj.io/drpc/drpcmanager"
	"storj.io/drpc/drpcserver"
	"storj.io/drpc/drpcwire"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// Programs of other servers' agents send lines as dRPC calls, each on a yamux stream of one websocket. Of the calls
// there, this server answers the one that adds lines; other calls get the code for unimplemented ones.

const (
	maxProgramConns   = 8                // websockets of one agent's programs
	maxProgramStreams = 4                // calls of a websocket at once
	programSilence    = 30 * time.Second // how long a call may take to arrive
	createLogs        = "/BatchCreateLogs"
)

// programRPC serves the calls of a program until it leaves, its agent ends or the server stops.
func (s *Service) programRPC(w http.ResponseWriter, r *http.Request) error {
	agent, err := s.program(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	done, err := s.trackProgram(&openTerminal{agent: agent.ID, end: cancel})
	if err != nil {
		return err
	}
	defer done()
	// Track before admitting: either a revocation finds the program, or the check finds the revocation.
	if agent, err = s.program(r); err != nil {
		return err
	}
	ws, err := websock.Accept(w, r, websock.AcceptOptions{})
	if err != nil {
		return nil // already answered
	}
	defer ws.CloseNow()
	defer context.AfterFunc(s.life, cancel)()
	config := yamux.DefaultConfig()
	config.LogOutput, config.AcceptBacklog = io.Discard, maxProgramStreams
	config.KeepAliveInterval = websock.DefaultPingInterval
	session, err := yamux.Server(ws.NetConn(ctx), config)
	if err != nil {
		return fmt.Errorf("serve program: %w", err)
	}
	defer session.Close()
	defer context.AfterFunc(ctx, func() { session.Close() })()
	var calls sync.WaitGroup
	defer calls.Wait()
	server := drpcserver.NewWithOptions(&programCalls{s, agent, r}, drpcserver.Options{Manager: drpcmanager.Options{
		Reader: drpcwire.ReaderOptions{MaximumBufferSize: maxProgramLogs}, InactivityTimeout: programSilence,
	}})
	free := make(chan struct{}, maxProgramStreams)
	for {
		stream, err := session.AcceptStreamWithContext(ctx)
		if err != nil {
			return nil // the program left, or its agent ended
		}
		select {
		case free <- struct{}{}:
		default:
			stream.Close()
			continue
		}
		calls.Go(func() {
			defer func() { <-free }()
			if err := server.ServeOne(ctx, stream); err != nil && ctx.Err() == nil {
				s.log.DebugContext(ctx, "program's call ended", "agent", agent.ID, "err", err)
			}
		})
	}
}

// trackProgram is track for a program of an agent. It refuses more than maxProgramConns of an agent.
func (s *Service) trackProgram(t *openTerminal) (done func(), err error) {
	s.terminals.Lock()
	defer s.terminals.Unlock()
	if s.terminals.programs[t.agent] >= maxProgramConns {
		return nil, fault.New(fault.RateLimited, "The agent has %d connections of programs.", maxProgramConns).
			WithDetail("Close one first.")
	}
	s.terminals.programs[t.agent]++
	untrack := s.trackLocked(t)
	return func() {
		untrack()
		s.terminals.Lock()
		defer s.terminals.Unlock()
		if s.terminals.programs[t.agent]--; s.terminals.programs[t.agent] == 0 {
			delete(s.terminals.programs, t.agent)
		}
	}, nil
}

// programCalls answers the calls of one program.
type programCalls struct {
	*Service
	agent Agent
	r     *http.Request
}

// HandleRPC implements drpc.Handler. Each call is authenticated anew, so that a connection outlives neither its agent
// nor its owner's account.
func (p *programCalls) HandleRPC(stream drpc.Stream, name string) error {
	if !strings.HasSuffix(name, createLogs) {
		return drpcerr.WithCode(fmt.Errorf("%s is not served here: only lines of a log are taken", short(name, maxText)),
			drpcerr.Unimplemented)
	}
	var batch programBatch
	if err := stream.MsgRecv(&batch, programEncoding{}); err != nil {
		return err
	}
	if _, err := p.program(p.r); err != nil {
		return p.explain(err)
	}
	if err := p.storeProgramLogs(stream.Context(), p.agent, batch.source, batch.lines); err != nil {
		return p.explain(err)
	}
	return stream.MsgSend(&programAnswer{}, programEncoding{})
}

// explain returns the error that a program sees.
func (p *programCalls) explain(err error) error {
	if f := fault.As(err); f != nil {
		return errors.New(f.Message)
	}
	p.log.Error("cannot store lines of a program", "agent", p.agent.ID, "err", err)
	return errors.New("the server cannot store this now: try again")
}

type programBatch struct {
	source uuid.UUID
	lines  []*agentpb.LogLine
}

// programAnswer is an empty message. Its field 1 would say that the log is full, and a program that reads so sends no
// more lines of the source: the last ones, which are kept of every log, would be missing.
type programAnswer struct{}

// programEncoding reads and writes the messages of BatchCreateLogs in protocol buffers. The request has the source's id
// in field 1 and the lines in field 2: time (1), output (2) and level (3).
type programEncoding struct{}

// Marshal implements drpc.Encoding.
func (programEncoding) Marshal(msg drpc.Message) ([]byte, error) {
	if _, ok := msg.(*programAnswer); !ok {
		return nil, fmt.Errorf("encode %T: not an answer to a program", msg)
	}
	return nil, nil
}

// Unmarshal implements drpc.Encoding.
func (programEncoding) Unmarshal(data []byte, msg drpc.Message) error {
	batch, ok := msg.(*programBatch)
	if !ok {
		return fmt.Errorf("decode %T: not a batch of a program", msg)
	}
	return eachField(data, func(n protowire.Number, bytes []byte, _ uint64) (err error) {
		switch n {
		case 1:
			batch.source, err = uuid.FromBytes(bytes)
		case 2:
			var line *agentpb.LogLine
			line, err = programLine(bytes)
			batch.lines = append(batch.lines, line)
		}
		return err
	})
}

// programLine decodes one line.
func programLine(data []byte) (*agentpb.LogLine, error) {
	line := &agentpb.LogLine{}
	return line, eachField(data, func(n protowire.Number, bytes []byte, number uint64) error {
		switch n {
		case 1:
			var seconds, nanos int64
			err := eachField(bytes, func(n protowire.Number, _ []byte, number uint64) error {
				switch n {
				case 1:
					seconds = int64(number)
				case 2:
					nanos = int64(number)
				}
				return nil
			})
			line.At = programTime(seconds, nanos)
			return err
		case 2:
			line.Output = string(bytes)
		case 3:
			line.Level = programWireLevels[number]
		}
		return nil
	})
}

// programWireLevels are the levels of lines as numbers: trace, debug, info, warn and error from 1 on.
var programWireLevels = map[uint64]agentpb.LogLevel{
	1: agentpb.LogLevel_LOG_LEVEL_DEBUG, 2: agentpb.LogLevel_LOG_LEVEL_DEBUG, 4: agentpb.LogLevel_LOG_LEVEL_WARN,
	5: agentpb.LogLevel_LOG_LEVEL_ERROR,
}

// eachField calls do with each field of a message: its bytes, or its number. It skips fields of other types.
func eachField(data []byte, do func(n protowire.Number, bytes []byte, number uint64) error) error {
	for len(data) > 0 {
		n, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return protowire.ParseError(size)
		}
		data = data[size:]
		var err error
		switch kind {
		case protowire.BytesType:
			var value []byte
			if value, size = protowire.ConsumeBytes(data); size >= 0 {
				err = do(n, value, 0)
			}
		case protowire.VarintType:
			var value uint64
			if value, size = protowire.ConsumeVarint(data); size >= 0 {
				err = do(n, nil, value)
			}
		default:
			size = protowire.ConsumeFieldValue(n, kind, data)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}
