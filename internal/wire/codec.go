package wire

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"atys.dev/atys/internal/wire/atysv1"
)

// Reading has a handler of connect take what strangers may send, and no more.
func Reading() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithReadMaxBytes(MaxRequest), unpacking(), connect.WithCodec(NewBinary()),
		connect.WithCodec(JSON{"json"}), connect.WithCodec(JSON{"json; charset=utf-8"}))
}

// Binary reads and writes messages for connect, in place of its own codec "proto".
// What a message takes in memory is told by how many parts it has, not by its
// bytes (an empty window is two bytes, and hundreds in memory): they are counted
// before it is read. Use NewBinary.
type Binary struct {
	shapes map[protoreflect.FullName]*shape
}

// shape is where the parts of a message are, by the numbers of its fields.
type shape struct {
	fields []field
	parts  bool // there are any
}

type field struct {
	part bool   // memory of its own: a message, or a string of many
	most int    // of these in one message; 0: as many as of all
	of   *shape // nil: it has no parts itself
}

// NewBinary prepares the codec for all our messages.
func NewBinary() *Binary {
	b := &Binary{shapes: map[protoreflect.FullName]*shape{}}
	for messages, i := atysv1.File_atys_proto.Messages(), 0; i < messages.Len(); i++ {
		b.shape(messages.Get(i))
	}
	b.bound(&atysv1.PushRequest{}, "series", "windows", "records")
	b.bound(&atysv1.Window{}, "contains")
	b.bound(&atysv1.ReportRequest{}, "targets", "tasks")
	return b
}

// bound has a message hold no more of some fields than a request may.
func (b *Binary) bound(m proto.Message, names ...protoreflect.Name) {
	d := m.ProtoReflect().Descriptor()
	for _, name := range names {
		b.shapes[d.FullName()].fields[d.Fields().ByName(name).Number()].most = MaxWindows
	}
}

func (b *Binary) shape(d protoreflect.MessageDescriptor) *shape {
	if s := b.shapes[d.FullName()]; s != nil {
		return s
	}
	s := &shape{}
	b.shapes[d.FullName()] = s
	for fields, i := d.Fields(), 0; i < fields.Len(); i++ {
		f := fields.Get(i)
		number := int(f.Number())
		for len(s.fields) <= number {
			s.fields = append(s.fields, field{})
		}
		one := field{part: f.IsList() && (f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind)}
		if f.Message() != nil {
			one.part = true
			if inner := b.shape(f.Message()); inner.parts {
				one.of = inner
			}
		}
		s.fields[number], s.parts = one, s.parts || one.part
	}
	return s
}

// count takes a message's parts off what is left.
func (s *shape) count(data []byte, left *int) error {
	var seen [32]int // of each field: no message of ours has as many
	all := fields{data: data}
	for all.next() {
		if int(all.number) >= len(s.fields) || !s.fields[all.number].part || all.kind != protowire.BytesType {
			continue
		}
		f := s.fields[all.number]
		seen[all.number]++
		if *left--; *left < 0 || f.most > 0 && seen[all.number] > f.most {
			return malformed("more parts than are taken at once: at most %d windows or targets, and %d of all", MaxWindows, MaxParts)
		}
		if f.of != nil {
			if err := f.of.count(all.bytes, left); err != nil {
				return err
			}
		}
	}
	return all.err
}

// Name is what connect calls it.
func (b *Binary) Name() string { return "proto" }

// Marshal writes a message.
func (b *Binary) Marshal(m any) ([]byte, error) { return b.MarshalAppend(nil, m) }

// MarshalAppend writes a message behind what there is.
func (b *Binary) MarshalAppend(to []byte, m any) ([]byte, error) {
	message, err := ours(m)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend(to, message)
}

// Unmarshal reads a message that has no more parts than it may.
func (b *Binary) Unmarshal(data []byte, m any) error {
	message, err := ours(m)
	if err != nil {
		return err
	}
	left := MaxParts
	if s := b.shapes[message.ProtoReflect().Descriptor().FullName()]; s != nil {
		if err := s.count(data, &left); err != nil {
			return err
		}
	}
	return proto.Unmarshal(data, message)
}

// JSON is connect's codec of that name for people and scripts: agents speak
// Binary. It takes MaxJSON bytes and no more.
type JSON struct{ As string } // "json", or "json; charset=utf-8"

// Name is what connect calls it.
func (j JSON) Name() string { return j.As }

// Marshal writes a message.
func (j JSON) Marshal(m any) ([]byte, error) {
	message, err := ours(m)
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(message)
}

// Unmarshal reads a message; what it does not know it leaves out.
func (j JSON) Unmarshal(data []byte, m any) error {
	message, err := ours(m)
	if err != nil {
		return err
	}
	if len(data) > MaxJSON {
		return malformed("%d bytes of JSON: at most %d are taken", len(data), MaxJSON)
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, message)
}

func ours(m any) (proto.Message, error) {
	message, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", m)
	}
	return message, nil
}
