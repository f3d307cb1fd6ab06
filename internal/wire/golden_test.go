package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// golden is a message as it was written when protocol 1 was released, with all
// that it can tell.
type golden struct {
	name    string
	message proto.Message
}

// goldens are the messages that agents and servers of different versions have to
// understand each other by.
func goldens(t *testing.T) []golden {
	t.Helper()
	b := NewBatch(func(profile.Hash) bool { return false })
	for seed := range uint64(2) {
		if err := b.Add(Seal(window(20+seed), profile.Run{1})); err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"service": "shop", "node": "n1"}
	return []golden{
		{"push", b.Request()},
		{"push-added-up", addedUp(labels)},
		{"push-divided", divided(labels)},
		{"push-divided-answer", &atysv1.PushResponse{TakesDivided: true}},
		{"push-rated", rated(labels)},
		{"push-slotted", slotted(labels)},
		{"push-records", recorded(labels)},
		{"push-records-answer", &atysv1.PushResponse{ReceivedUnixNano: 1_790_000_000_000_000_000, AnsweredUnixNano: 1_790_000_000_001_000_000,
			KeptRecords: 1, RefusedRecords: []*atysv1.RefusedRecord{{Record: 1, Why: "too old"}}}},
		{"push-answer", &atysv1.PushResponse{Unknown: make([]byte, 32), ReceivedUnixNano: 1_790_000_000_000_000_000, AnsweredUnixNano: 1_790_000_000_001_000_000,
			Overlaps: []*atysv1.Overlap{{Window: 1, Parts: []uint32{0, 2}}}, ClockErrorNs: 7}},
		{"attend", &atysv1.AttendRequest{Node: "n1", Run: make([]byte, 16), Version: "1.0", Labels: labels}},
		{"orders", &atysv1.Orders{Revision: 7, ShipTo: "http://relay:4301", Tasks: []*atysv1.Task{{Id: "a1", Profile: `{"kind":"Profile","name":"lasting"}`,
			UntilUnixNano: 1_790_000_000_000_000_000, Limited: true, Chosen: []*atysv1.Series{{Labels: labels}}, Eligible: 9, Recorded: 3}}}},
		{"orders-rates", &atysv1.Orders{Revision: 8, Tasks: []*atysv1.Task{{Id: "a1", Profile: `{"kind":"Profile","name":"lasting","frequency":{"min":19,"max":999,"policy":"auto"}}`,
			Rates: []*atysv1.ServiceRate{{Service: "shop", Rate: aRate()}}}}}},
		{"orders-unchanged", &atysv1.Orders{Revision: 7, Unchanged: true}},
		{"report", &atysv1.ReportRequest{Node: "n1", Run: make([]byte, 16), Version: "1.0", Leaving: true,
			Targets: []*atysv1.Target{{Labels: labels, Processes: 3}},
			Tasks:   []*atysv1.TaskState{{Id: "a1", Phase: "running", Message: "less than its rate", Targets: 1, Frequency: 99}},
			State: &atysv1.NodeState{WaitingWindows: 1, ShippedWindows: 2, LostWindows: 3, ClockOffsetNs: -4, ClockErrorNs: 5, CpuNs: 6, MemoryBytes: 7,
				StartedUnixNano: 8, MetricsAddress: "n1:9100", Cost: &atysv1.Cost{UserNs: 1, BpfNs: 2, InterruptNs: 3}, Cores: .25, CoresBudget: .5,
				MemoryBudget: 9, MapBytes: 10, BudgetMessage: "slower", CapHertz: 49, LastEnd: "killed"}}},
		{"report-answer", &atysv1.ReportResponse{ReceivedUnixNano: 1_790_000_000_000_000_000}},
	}
}

// addedUp is a request as a relay adds windows up: of the parts one begins with it.
func addedUp(labels map[string]string) *atysv1.PushRequest {
	w := &atysv1.Window{Series: 0, Task: "t", Run: make([]byte, 16), StartUnixNano: 1_790_000_000_001_000_000, DurationNs: 10_000_000_000,
		Types:    []*atysv1.ValueType{{Kind: "cpu", Unit: "nanoseconds", Period: 10, Scale: 5}},
		Rows:     &atysv1.Rows{Stack: []uint32{0}, N: []int64{3}, Value: []int64{7}, Spread: []int64{1}, Groups: []int64{2, 0, 0, 0, 0, 5, 0, 0}},
		Contains: []*atysv1.Contained{{Series: 1, Run: bytes.Repeat([]byte{1}, 16)}, {Series: 1, Run: bytes.Repeat([]byte{2}, 16), AfterNs: 2_575_581}}}
	return &atysv1.PushRequest{Stacks: make([]byte, 16), Windows: []*atysv1.Window{w}, Series: []*atysv1.Series{{Labels: map[string]string{"service": "shop"}}, {Labels: labels}}}
}

// divided is a request as a relay adds up windows of several types, contexts, peers, exemplars and
// slots.
func divided(labels map[string]string) *atysv1.PushRequest {
	r := addedUp(labels)
	w := r.Windows[0]
	w.Types = append(w.Types, &atysv1.ValueType{Kind: "waits", Unit: "count", Scale: 1, Variance: uint32(profile.Measured)})
	w.SlotNs, w.Contexts = 50_000_000, []*atysv1.Context{{Reason: "blocked"}}
	w.Rows.Value, w.Rows.Groups = append(w.Rows.Value, 3), append(w.Rows.Groups, 1, 0, 0, 0, 0, 2, 0, 0)
	w.Rows.Context, w.Rows.Peer, w.Rows.Slot, w.Rows.Variance = []uint32{1}, []uint32{1}, []uint32{2}, []float32{4}
	w.Exemplars = []*atysv1.Exemplar{{Trace: "t", Span: "s", Context: 1, AfterNs: 5, Value: 9}}
	w.Numbered = numbering(r.Stacks)
	return r
}

func aRate() *atysv1.Rate {
	return Rate(profile.Rate{Hertz: 99.5, Policy: "atys", Reason: "changed", Why: "divergence 0.3 of the window before, threshold 0.05", By: profile.ByServer})
}

// rated is a request whose window tells how often was sampled, and why.
func rated(labels map[string]string) *atysv1.PushRequest {
	w := &atysv1.Window{Task: "t", Run: make([]byte, 16), StartUnixNano: 1_790_000_000_001_000_000, DurationNs: 10_000_000_000, Rate: aRate()}
	return &atysv1.PushRequest{Windows: []*atysv1.Window{w}, Series: []*atysv1.Series{{Labels: labels}}}
}

// recorded is a request with records.
func recorded(labels map[string]string) *atysv1.PushRequest {
	decided := &atysv1.Record{Kind: "rate-decision", StartUnixNano: 1_790_000_000_001_000_000, DurationNs: 10_000_000_000, Run: make([]byte, 16),
		Sequence: 7, Encoding: "json", Version: 1, Payload: []byte(`{"hertz":99}`)}
	return &atysv1.PushRequest{Records: []*atysv1.Record{decided, {Kind: "empty", Run: make([]byte, 16)}}, Series: []*atysv1.Series{{Labels: labels}}}
}

// slotted is a request whose window tells when rows were sampled.
func slotted(labels map[string]string) *atysv1.PushRequest {
	w := &atysv1.Window{Task: "t", Run: make([]byte, 16), StartUnixNano: 1_790_000_000_001_000_000, DurationNs: 10_000_000_000, SlotNs: 1_000_000_000,
		Types: []*atysv1.ValueType{{Kind: "cpu", Unit: "nanoseconds", Period: 10, Scale: 5}},
		Rows:  &atysv1.Rows{Stack: []uint32{0, 0}, Slot: []uint32{1, 10}, N: []int64{3, 1}, Value: []int64{7, 2}}}
	return &atysv1.PushRequest{Stacks: make([]byte, 16), Windows: []*atysv1.Window{w}, Series: []*atysv1.Series{{Labels: labels}}}
}

// released is a message as its bytes were written, and what they mean, for people
// beside it; with -update both are written, but what was released stays.
func released(t *testing.T, g golden) (data []byte, meaning proto.Message) {
	t.Helper()
	bytesFile, textFile := filepath.Join("testdata", g.name+"-1.hex"), filepath.Join("testdata", g.name+"-1.txtpb")
	if _, err := os.Stat(bytesFile); *update && errors.Is(err, os.ErrNotExist) {
		text, err := prototext.MarshalOptions{Multiline: true}.Marshal(g.message)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(bytesFile, []byte(hex.EncodeToString(written(t, g.message))+"\n"), 0o644), os.WriteFile(textFile, text, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(bytesFile)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = hex.DecodeString(string(bytes.TrimSpace(text))); err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile(textFile); err != nil {
		t.Fatal(err)
	}
	meaning = g.message.ProtoReflect().New().Interface()
	if err := prototext.Unmarshal(text, meaning); err != nil {
		t.Fatal(err)
	}
	return data, meaning
}

func written(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// read reads a message as agents and servers do.
func read(t *testing.T, data []byte, like proto.Message) proto.Message {
	t.Helper()
	m := like.ProtoReflect().New().Interface()
	if err := NewBinary().Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	if push, ok := m.(*atysv1.PushRequest); ok {
		_, err := CheckPush(push)
		if _, learnt := Learn(push.GetDictionary()); err != nil || learnt != nil {
			t.Error(err, learnt)
		}
	}
	return m
}

// laterVersion is what a later version tells, in fields that nobody knows yet.
func laterVersion() []byte {
	later := protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), "of a later version")
	return protowire.AppendVarint(protowire.AppendTag(later, 9998, protowire.VarintType), 7)
}

// setUnknown has a message, and all that it holds, have such unknown fields.
func setUnknown(m protoreflect.Message, unknown []byte) {
	m.SetUnknown(unknown)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				setUnknown(v.List().Get(i).Message(), unknown)
			}
		default:
			setUnknown(v.Message(), unknown)
		}
		return true
	})
}

// TestGoldenMessages reads what peers of the first protocol write, and writes what
// they read: nothing was renumbered, and what a later one adds is left aside.
func TestGoldenMessages(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.name, func(t *testing.T) {
			data, meaning := released(t, g)
			if got := read(t, data, meaning); !proto.Equal(got, meaning) {
				t.Errorf("an older peer's message is read as\n%v, it means\n%v", got, meaning)
			}
			if got := written(t, meaning); !bytes.Equal(got, data) {
				t.Errorf("an older peer is written\n%x, it reads\n%x", got, data)
			}
			later := proto.Clone(meaning)
			setUnknown(later.ProtoReflect(), laterVersion())
			got := read(t, written(t, later), meaning)
			setUnknown(got.ProtoReflect(), nil)
			if !proto.Equal(got, meaning) {
				t.Errorf("a later peer's message is read as\n%v, it means\n%v", got, meaning)
			}
		})
	}
}
