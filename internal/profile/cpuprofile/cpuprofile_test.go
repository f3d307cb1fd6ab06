package cpuprofile_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/corpus"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/cpuprofile"
	"atys.dev/atys/internal/profile/perfscript"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func sample() *profile.Window {
	b := profile.NewBuilder(profile.Head{Start: time.Unix(1_700_000_000, 0), Types: []profile.ValueType{profile.CPUTime(0), {Kind: "page-faults", Unit: "count"}}})
	main := b.Named(profile.Frame{Function: "main", File: "/src/shop.c", StartLine: 3, Line: 9, Kind: profile.KindNative})
	leaf := b.Named(profile.Frame{Function: "std::less<int>", Mapping: "/usr/lib/libx.so", Kind: profile.KindNative})
	http := b.Thread(profile.Thread{PID: 1, TID: 2, Process: "shop", Name: "http-1"})
	add := func(end profile.End, n, cpu, faults int64, stack ...profile.LocationID) {
		b.Add(profile.Row{Stack: b.Stack(stack, end), Thread: http, N: n, Values: []int64{cpu, faults}})
	}
	add(profile.EndComplete, 2, 20_000_400, 1, leaf, main)
	add(profile.EndComplete, 1, 10_000_400, 0, main)
	add(profile.EndTooDeep, 1, 10_000_400, 3, leaf)
	return b.Window()
}

func timed() *profile.Window {
	w := sample()
	w.Duration = 100 * time.Millisecond
	w.Samples = []profile.Sample{{Time: 60e6, Stack: 1, Weight: 20e6, Thread: 1}, {Time: 25e6, Stack: 0, Thread: 1, Weight: 20e6}, {Time: 70e6, Stack: 2, Weight: 20e6, Thread: 1}}
	return w
}

func TestWrite(t *testing.T) {
	tests := []struct {
		name    string
		window  *profile.Window
		options cpuprofile.Options
	}{
		{"cpu", sample(), cpuprofile.Options{}},
		{"faults", sample(), cpuprofile.Options{Type: "page-faults", Process: true, Thread: true}},
		{"timed", timed(), cpuprofile.Options{}},
		{"empty", &profile.Window{Head: profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}}}, cpuprofile.Options{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got bytes.Buffer
			if err := cpuprofile.Write(&got, test.window, test.options); err != nil {
				t.Fatal(err)
			}
			checkFile(t, got.Bytes())
			golden := filepath.Join("testdata", test.name+".cpuprofile")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("got  %s\nwant %s", got.Bytes(), want)
			}
		})
	}
}

// What developer tools compute as a function's own time is what the window has.
func TestOwnTimes(t *testing.T) {
	w, err := perfscript.Read(bytes.NewReader(corpus.Read("perf/default.txt")))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := profile.NewTree(profile.TreeOptions{}, w)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := cpuprofile.Write(&file, w, cpuprofile.Options{}); err != nil {
		t.Fatal(err)
	}
	own := checkFile(t, file.Bytes())
	for _, f := range tree.Functions() {
		if want, got := f.Self[0].Value/1000, own[f.Frame.Function]; got < want-100 || got > want+100 {
			t.Errorf("%s: %d us, want %d", f.Frame.Function, got, want)
		}
	}
}

// checkFile validates a file as the protocol (Profiler.Profile) describes it
// and DevTools' CPUProfileDataModel reads it; it gives each function's own
// time the way that computes it: a sample lasts until the next one.
func checkFile(t *testing.T, data []byte) map[string]int64 {
	t.Helper()
	var f struct {
		Nodes []struct {
			ID        int
			CallFrame *struct {
				FunctionName, ScriptID, URL *string
				LineNumber, ColumnNumber    *int
			}
			HitCount *int64
			Children []int
		}
		StartTime, EndTime *int64
		Samples            []int
		TimeDeltas         []int64
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		t.Fatal(err)
	}
	if len(f.Nodes) == 0 || f.StartTime == nil || f.EndTime == nil || *f.EndTime < *f.StartTime || len(f.Samples) != len(f.TimeDeltas) {
		t.Fatalf("file %s", data)
	}
	names, parents := map[int]string{}, map[int]int{}
	for _, n := range f.Nodes {
		c := n.CallFrame
		if c == nil || c.FunctionName == nil || c.ScriptID == nil || c.URL == nil || c.LineNumber == nil || c.ColumnNumber == nil || n.HitCount == nil || n.Children == nil {
			t.Fatalf("node %d lacks a field", n.ID)
		}
		if _, twice := names[n.ID]; twice || n.ID <= 0 {
			t.Fatalf("two nodes %d", n.ID)
		}
		names[n.ID] = *c.FunctionName
		for _, child := range n.Children {
			parents[child]++
		}
	}
	if names[f.Nodes[0].ID] != "(root)" {
		t.Errorf("the first node is %q", names[f.Nodes[0].ID])
	}
	for i, n := range f.Nodes {
		if want := min(i, 1); parents[n.ID] != want {
			t.Errorf("node %d has %d parents", n.ID, parents[n.ID])
		}
	}
	own := map[string]int64{}
	at := *f.StartTime
	for i, id := range f.Samples {
		if names[id] == "" || f.TimeDeltas[i] < 0 {
			t.Errorf("sample %d: node %d after %d", i, id, f.TimeDeltas[i])
		}
		if at += f.TimeDeltas[i]; i+1 < len(f.Samples) {
			own[names[id]] += f.TimeDeltas[i+1]
		}
	}
	if len(f.Samples) > 0 && at != *f.EndTime {
		t.Errorf("samples reach %d, the end is %d", at, *f.EndTime)
	}
	return own
}

func TestWriteRefuses(t *testing.T) {
	negative := sample()
	negative.Rows.At(0).Values[0] = -1
	tests := []struct {
		want    string
		window  *profile.Window
		options cpuprofile.Options
	}{
		{"no negative values", negative, cpuprofile.Options{}},
		{`no value type "heat"`, sample(), cpuprofile.Options{Type: "heat"}},
		{"no value type", &profile.Window{}, cpuprofile.Options{}},
	}
	for _, test := range tests {
		if err := cpuprofile.Write(&bytes.Buffer{}, test.window, test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got error %v, want %q in it", err, test.want)
		}
	}
}
