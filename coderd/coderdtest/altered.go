package coderdtest

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Altered yields a copy of a message for each of its fields, and for each field of the messages in it, with another
// value of that field. The name is that of the message's type and the field: App.url. The first message of a type
// stands for all of them. If the example has no message of a type, the copy for the field of that type is unaltered.
// others has values of fields that do not take every text.
func Altered[M proto.Message](example M, others map[string]string) iter.Seq2[string, M] {
	found := map[protoreflect.FullName]bool{} // types of messages
	var paths [][]protoreflect.FieldDescriptor
	var empty []protoreflect.FieldDescriptor
	var visit func(m protoreflect.Message, path []protoreflect.FieldDescriptor)
	visit = func(m protoreflect.Message, path []protoreflect.FieldDescriptor) {
		if found[m.Descriptor().FullName()] {
			return
		}
		found[m.Descriptor().FullName()] = true
		fields := m.Descriptor().Fields()
		for i := range fields.Len() {
			fd := fields.Get(i)
			to := append(slices.Clone(path), fd)
			switch {
			case fd.IsMap() || fd.Message() == nil:
				paths = append(paths, to)
			case !m.Has(fd):
				empty = append(empty, fd)
			default:
				visit(within(m, fd), to)
			}
		}
	}
	visit(example.ProtoReflect(), nil)
	return func(yield func(string, M) bool) {
		for _, fd := range empty {
			if !found[fd.Message().FullName()] && !yield(fieldName(fd), proto.CloneOf(example)) {
				return
			}
		}
		for _, path := range paths {
			altered := proto.CloneOf(example)
			m, last := altered.ProtoReflect(), len(path)-1
			for _, fd := range path[:last] {
				m = within(m, fd)
			}
			alter(m, path[last], others[fieldName(path[last])])
			if !yield(fieldName(path[last]), altered) {
				return
			}
		}
	}
}

func fieldName(fd protoreflect.FieldDescriptor) string {
	return string(fd.Parent().Name()) + "." + string(fd.Name())
}

// within returns the message in a field, or the first one.
func within(m protoreflect.Message, fd protoreflect.FieldDescriptor) protoreflect.Message {
	if fd.IsList() {
		return m.Get(fd).List().Get(0).Message()
	}
	return m.Get(fd).Message()
}

// alter gives a field another value, which is other unless that is empty. It adds to lists and maps of texts.
func alter(m protoreflect.Message, fd protoreflect.FieldDescriptor, other string) {
	old := m.Get(fd)
	switch {
	case fd.IsMap():
		m.Mutable(fd).Map().Set(protoreflect.ValueOfString("other").MapKey(), protoreflect.ValueOfString("x"))
	case fd.IsList():
		m.Mutable(fd).List().Append(protoreflect.ValueOfString("other"))
	case fd.Kind() == protoreflect.BoolKind:
		m.Set(fd, protoreflect.ValueOfBool(!old.Bool()))
	case fd.Kind() == protoreflect.Int32Kind:
		m.Set(fd, protoreflect.ValueOfInt32(int32(old.Int())+10))
	case fd.Kind() == protoreflect.Int64Kind:
		m.Set(fd, protoreflect.ValueOfInt64(old.Int()+10))
	case fd.Kind() == protoreflect.BytesKind: // of an id
		id := slices.Clone(old.Bytes())
		id[len(id)-1]++
		m.Set(fd, protoreflect.ValueOfBytes(id))
	case other != "":
		m.Set(fd, protoreflect.ValueOfString(other))
	default:
		m.Set(fd, protoreflect.ValueOfString(old.String()+"-other"))
	}
}
