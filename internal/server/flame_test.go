package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire/atysv1"
)

// drawn is what the nodes of a document add up to; see encode.go of render.
func drawn(t *testing.T, document []byte) (nodes int, n, value int64) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	next := func() int {
		v, size := binary.Uvarint(data)
		if size <= 0 {
			t.Fatal("the document ends early")
		}
		data = data[size:]
		return int(v)
	}
	skip := func(count int) {
		for range count {
			next()
		}
	}
	head := next()
	data = data[head:]
	strings, bytes := next(), 0
	skip(strings) // prefixes
	for range strings {
		bytes += next()
	}
	data = data[bytes:]
	skip(7 * next()) // frames
	nodes = next()
	skip(4 * nodes)
	for range nodes {
		n += int64(next())
	}
	for range nodes {
		value += int64(next())
	}
	return nodes, n, value
}

// asked is a server whose store has windows of two instruments over ten minutes.
func asked(t *testing.T) (*Server, *atysv1.Selection) {
	t.Helper()
	kept := mem.New(1)
	s, err := New(Options{Store: kept, Now: func() time.Time { return noon.Add(time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var windows []*profile.Window
	for i := range uint64(30) {
		w := storetest.Window(i, "shop", fmt.Sprint("i", i%3), noon.Add(time.Duration(i)*20*time.Second))
		if i%2 == 1 {
			w.Types[0], w.Types[1] = profile.ValueType{Kind: "off-cpu", Unit: "nanoseconds", Base: profile.BaseWall}, profile.ValueType{Kind: "waits", Unit: "count"}
		}
		windows = append(windows, w)
	}
	if err := kept.Put(t.Context(), "default", store.Raw, storetest.Batch(profile.Run{7}, windows...)); err != nil {
		t.Fatal(err)
	}
	kept.Settle()
	return s, &atysv1.Selection{Select: `{service="shop"}`, Kind: "cpu", FromUnixNano: noon.UnixNano(), ToUnixNano: noon.Add(10 * time.Minute).UnixNano()}
}

// totals is what Merge answers.
func totals(t *testing.T, s *Server, about *atysv1.Selection) (n, value int64) {
	t.Helper()
	merged, err := s.Merge(context.Background(), &atysv1.MergeRequest{Selection: about})
	if err != nil {
		t.Fatal(err)
	}
	return merged.GetCoverage().GetN(), valueOf(merged)
}

// valueOf is the value of a merged window.
func valueOf(m *atysv1.MergeResponse) (value int64) {
	rows := m.GetWindow().GetWindow().GetRows()
	for _, v := range rows.GetValue() {
		value += v
	}
	return value * m.GetWindow().GetWindow().GetTypes()[0].GetScale()
}

func TestFlame(t *testing.T) {
	s, about := asked(t)
	for _, kinds := range [][]string{nil, {"off-cpu"}, {"cpu", "off-cpu"}} {
		about.Kinds = kinds
		n, value := totals(t, s, about)
		for _, ask := range []*atysv1.FlameRequest{{}, {Nodes: 5}, {Nodes: 100}, {Fold: "own"}, {Fold: "own", Nodes: 3}} {
			ask.Selection = about
			flame, err := s.Flame(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			nodes, gotN, gotValue := drawn(t, flame.GetDocument())
			if gotN != n || gotValue != value || flame.GetCoverage().GetN() != n {
				t.Errorf("%v: %d samples, %d; want %d, %d", ask, gotN, gotValue, n, value)
			}
			if ask.GetNodes() > 0 && (flame.GetFolded() == 0 || nodes > 2*int(ask.GetNodes())+2) || ask.GetNodes() == 0 && flame.GetFolded() != 0 {
				t.Errorf("%v: %d nodes, %d folded", ask, nodes, flame.GetFolded())
			}
		}
	}
	about.Kinds = nil
	about.Select = `{service="none"}`
	if flame, err := s.Flame(t.Context(), &atysv1.FlameRequest{Selection: about}); err != nil || len(flame.GetDocument()) != 0 {
		t.Errorf("of nothing: %d bytes, %v", len(flame.GetDocument()), err)
	}
	if _, err := s.Flame(t.Context(), &atysv1.FlameRequest{Selection: about, Fold: "mine"}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("an unknown fold: %v", err)
	}
}

// TestKindsTogether asks for CPU and off-CPU time as one: values add up, and each kind's part
// is told.
func TestKindsTogether(t *testing.T) {
	s, about := asked(t)
	parts := map[string]int64{}
	for _, kind := range []string{"cpu", "off-cpu"} {
		about.Kind = kind
		_, parts[kind] = totals(t, s, about)
	}
	about.Kind, about.Kinds = "", []string{"off-cpu", "cpu"}
	merged, err := s.Merge(t.Context(), &atysv1.MergeRequest{Selection: about})
	if err != nil {
		t.Fatal(err)
	}
	if ty := merged.GetWindow().GetWindow().GetTypes(); len(ty) != 1 || ty[0].GetKind() != "wall" {
		t.Errorf("types %v", ty)
	}
	if got := valueOf(merged); got != parts["cpu"]+parts["off-cpu"] || parts["cpu"] == 0 || parts["off-cpu"] == 0 {
		t.Errorf("together %d, by themselves %v", got, parts)
	}
	told := merged.GetCoverage().GetKinds()
	if len(told) != 2 || told[0].GetKind() != "cpu" || told[0].GetValue() != parts["cpu"] || told[1].GetValue() != parts["off-cpu"] {
		t.Errorf("told are %v, want %v", told, parts)
	}
	about.Kinds = []string{"cpu", "waits"}
	if _, err := s.Merge(t.Context(), &atysv1.MergeRequest{Selection: about}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("kinds of several units: %v", err)
	}
	about.Kinds = []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	if _, err := s.Merge(t.Context(), &atysv1.MergeRequest{Selection: about}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("many kinds: %v", err)
	}
}

func TestSeries(t *testing.T) {
	s, about := asked(t)
	for _, kinds := range [][]string{nil, {"off-cpu"}} {
		about.Kinds = kinds
		n, value := totals(t, s, about)
		for _, by := range []string{"", "instance"} {
			series, err := s.Series(t.Context(), &atysv1.SeriesRequest{Selection: about, StepNs: int64(time.Minute), By: by, Limit: 2})
			if err != nil {
				t.Fatal(err)
			}
			lines := series.GetLines()
			if len(lines) != 3 || !lines[2].GetOther() || series.GetUnit() != "nanoseconds" || series.GetCoverage().GetN() != n {
				t.Fatalf("by %q: %v", by, series)
			}
			var gotN, gotValue int64
			for _, l := range lines {
				if len(l.GetPoints()) != 10 {
					t.Errorf("%q has %d points", l.GetName(), len(l.GetPoints()))
				}
				for _, p := range l.GetPoints() {
					gotN, gotValue = gotN+p.GetN(), gotValue+p.GetValue()
					if share := p.GetShare(); share.GetLow() > share.GetValue() || share.GetHigh() < share.GetValue() {
						t.Errorf("%q: %v", l.GetName(), p)
					}
				}
			}
			if gotN != n || gotValue != value {
				t.Errorf("by %q: %d samples, %d; want %d, %d", by, gotN, gotValue, n, value)
			}
		}
	}
	for name, ask := range map[string]*atysv1.SeriesRequest{"no step": {}, "many steps": {StepNs: int64(time.Millisecond)}, "many lines": {StepNs: int64(time.Minute), Limit: 1000},
		"by thread": {StepNs: int64(time.Minute), By: "thread"}} {
		ask.Selection = about
		if _, err := s.Series(t.Context(), ask); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
