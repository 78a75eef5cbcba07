package provisionerd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const (
	// defaultPieceBytes is the default of Options.PieceBytes. The server accepts pieces up to this size.
	defaultPieceBytes = 4 << 20
	// maxState bounds a state, in bytes: a wrong length must not exhaust the machine's memory.
	maxState = 1 << 30
)

var errStateChanged = errors.New("the state's pieces do not make the state that was announced")

// refOf describes a state that is sent in pieces.
func refOf(state []byte) *provisionerpb.StateRef {
	sum := sha256.Sum256(state)
	return &provisionerpb.StateRef{Size: uint64(len(state)), Sha256: sum[:]}
}

// checkState returns an error unless ref describes state.
func checkState(state []byte, ref *provisionerpb.StateRef) error {
	if sum := sha256.Sum256(state); uint64(len(state)) != ref.GetSize() || !bytes.Equal(sum[:], ref.GetSha256()) {
		return errStateChanged
	}
	return nil
}

// pieces calls yield with the events that carry a state, in order, until yield returns an error.
func pieces(state []byte, size int, yield func(*provisionerpb.Event) error) error {
	for at := 0; at < len(state); at += size {
		piece := &provisionerpb.StatePiece{Offset: uint64(at), Data: state[at:min(at+size, len(state))]}
		if err := yield(&provisionerpb.Event{Event: &provisionerpb.Event_StatePiece{StatePiece: piece}}); err != nil {
			return err
		}
	}
	return nil
}

// takeOut replaces a result's state with its description if the state is too large for one message. It returns the
// removed state, or nil.
func takeOut(result *provisionerpb.Result, size int) []byte {
	build := result.GetWorkspaceBuild()
	state := build.GetState()
	if len(state) <= size {
		return nil
	}
	build.State, build.StateInPieces = nil, refOf(state)
	return state
}

// sendable makes a result fit into a message: it makes the text valid, and drops the list of resources if that is too
// large. It always keeps the state and the names of what the state may lack.
func sendable(result *provisionerpb.Result) *provisionerpb.Result {
	if _, err := proto.Marshal(result); err != nil {
		cleanMessage(result.ProtoReflect())
	}
	if proto.Size(result) <= maxMessage-1024 {
		return result
	}
	small := &provisionerpb.Result{Error: fmt.Sprintf("The job's result cannot be sent: it has %d bytes.",
		proto.Size(result))}
	if result.GetError() != "" {
		small.Error = cleanText(result.GetError(), maxLine) + " " + small.GetError()
	}
	if build := result.GetWorkspaceBuild(); build != nil {
		small.Of = &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
			State: build.GetState(), StateInPieces: build.GetStateInPieces(),
			InFlight: cleanText(build.GetInFlight(), maxLine),
			Unknown:  build.GetUnknown(), Tainted: build.GetTainted(),
		}}
	}
	return small
}

// cleanMessage makes every string in m valid UTF-8, as protobuf requires.
func cleanMessage(m protoreflect.Message) {
	clean := func(v protoreflect.Value) protoreflect.Value {
		return protoreflect.ValueOfString(validText(v.String()))
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		text, message := field.Kind() == protoreflect.StringKind, field.Kind() == protoreflect.MessageKind
		switch {
		case field.IsMap():
			kept := map[string]protoreflect.Value{}
			value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				if field.MapValue().Kind() == protoreflect.MessageKind {
					cleanMessage(value.Message())
				} else if field.MapValue().Kind() == protoreflect.StringKind {
					value = clean(value)
				}
				kept[validText(key.String())] = value
				return true
			})
			if field.MapKey().Kind() == protoreflect.StringKind {
				m.Clear(field)
				for key, value := range kept {
					m.Mutable(field).Map().Set(protoreflect.ValueOfString(key).MapKey(), value)
				}
			}
		case field.IsList():
			list := value.List()
			for i := range list.Len() {
				if text {
					list.Set(i, clean(list.Get(i)))
				} else if message {
					cleanMessage(list.Get(i).Message())
				}
			}
		case text:
			m.Set(field, clean(value))
		case message:
			cleanMessage(value.Message())
		}
		return true
	})
}

// fetchState fetches the state with which a build or a plan begins if that was too large for the offer. It waits while
// the server is unreachable.
func (d *Daemon) fetchState(ctx context.Context, l *lease) error {
	build, existing := l.offer.GetWorkspaceBuild(), l.offer.GetTemplateDryRun().GetExisting()
	ref := build.GetStateInPieces()
	if existing != nil {
		ref = existing.GetStateInPieces()
	}
	if ref == nil {
		return nil
	}
	if ref.GetSize() > maxState {
		return fmt.Errorf("fetch the workspace's state: it has %d bytes, more than %d", ref.GetSize(), maxState)
	}
	for {
		s, err := d.awaitSession(ctx)
		if err != nil {
			return fmt.Errorf("fetch the workspace's state: %w", err)
		}
		state, err := fetchStateOnce(ctx, s, l, ref)
		if err == nil {
			if existing != nil {
				existing.State, existing.StateInPieces = state, nil
			} else {
				build.State, build.StateInPieces = state, nil
			}
			return nil
		}
		if code := connect.CodeOf(err); ctx.Err() != nil || code == connect.CodePermissionDenied ||
			code == connect.CodeUnimplemented || errors.Is(err, errStateChanged) {
			return fmt.Errorf("fetch the workspace's state: %w", err)
		}
		l.log.Warn("cannot fetch state, waiting for a new session", "err", err)
		select {
		case <-s.dead:
		case <-l.stop:
			return fmt.Errorf("fetch the workspace's state: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func fetchStateOnce(ctx context.Context, s *session, l *lease, ref *provisionerpb.StateRef) ([]byte, error) {
	st, err := s.rpc.State(ctx,
		connect.NewRequest(&provisionerpb.StateRequest{JobId: l.key.job[:], Epoch: l.key.epoch}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = st.Close() }() // Receive has returned its error
	var state []byte
	for st.Receive() {
		state = append(state, st.Msg().GetData()...)
		if uint64(len(state)) > ref.GetSize() {
			return nil, errStateChanged
		}
	}
	if err := st.Err(); err != nil {
		return nil, err
	}
	return state, checkState(state, ref)
}
