package main

import (
	"bytes"
	"compress/gzip"
	"math"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/pprof"
)

// TestLossOfAWorkload: of a program that does a tenth less in a second of CPU time, and
// has half as much of that, our kernel took a tenth of what it had, and one that stops it
// more than half of it.
func TestLossOfAWorkload(t *testing.T) {
	of := truth{windows: map[int64]used{}}
	for i := range int64(12) {
		u := used{ns: []float64{1.5e9}, done: 300}
		if i >= 4 && i < 8 {
			u = used{ns: []float64{0.75e9}, done: 135}
		}
		of.windows[i*second] = u
	}
	for _, c := range []struct {
		perCPU bool
		want   float64
	}{{true, 0.1 * 0.75}, {false, (1 - 135./300) * 0.75}} {
		run := trial{before: span{0, 4 * second}, after: span{8 * second, 12 * second}}
		run.span = span{4 * second, 8 * second}
		if err := run.lose(of, c.perCPU); err != nil || math.Abs(run.lost-c.want) > 1e-9 {
			t.Errorf("by CPU time %v: %v cores lost, want %v (%v)", c.perCPU, run.lost, c.want, err)
		}
	}
	if err := (&trial{}).lose(of, true); err == nil {
		t.Error("a run of no length lost something")
	}
}

// TestPushIsRead reads what the agent of pyroscope-io pushes: a profile within series
// within a request, of which the samples are told by their time.
func TestPushIsRead(t *testing.T) {
	w := &profile.Window{Head: profile.Head{Types: []profile.ValueType{profile.CPUTime(10_000_000)}},
		Locations: []profile.Location{{Name: "relu", File: "torch/nn/functional.py"}}, Names: make([][]profile.Frame, 1),
		Stacks: []profile.Stack{{Locations: []profile.LocationID{0}}}, Rows: profile.RowsOf(1, profile.Row{N: 1, Values: []int64{70_000_000}})}
	var raw bytes.Buffer
	if err := pprof.Write(&raw, w); err != nil {
		t.Fatal(err)
	}
	message := func(number protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
	}
	label := message(1, []byte("a label"))
	var body bytes.Buffer
	zip := gzip.NewWriter(&body)
	if _, err := zip.Write(message(1, append(label, message(2, message(1, raw.Bytes()))...))); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := readPush(httptest.NewRequest("POST", "/push.v1.PusherService/Push", &body))
	if err != nil || len(got) != 1 || got[0].N() != 7 {
		t.Fatalf("%d profiles: %v", len(got), err)
	}
	relu := workloads["python"].hot[3]
	if f := got[0].Frames(0)[0]; !relu.is(&f) {
		t.Errorf("%+v is not %+v", f, relu)
	}
}
