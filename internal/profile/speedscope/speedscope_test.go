package speedscope_test

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
	"atys.dev/atys/internal/profile/perfscript"
	"atys.dev/atys/internal/profile/speedscope"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func sample() *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0), {Kind: "page-faults", Unit: "count"}}})
	main := b.Named(profile.Frame{Function: "main", File: "/src/shop.c", StartLine: 3, Line: 9, Kind: profile.KindNative})
	again := b.Named(profile.Frame{Function: "main", File: "/src/shop.c", StartLine: 3, Line: 12, Kind: profile.KindNative})
	leaf := b.Named(profile.Frame{Function: "std::less<int>", Mapping: "/usr/lib/libx.so", Kind: profile.KindNative})
	http := b.Thread(profile.Thread{PID: 1, TID: 2, Process: "shop", Name: "http-1"})
	b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf, main}, profile.EndComplete), Thread: http, N: 2, Values: []int64{20, 1}})
	b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{again}, profile.EndTooDeep), N: 1, Values: []int64{30, 0}})
	return b.Window()
}

func timed() *profile.Window {
	w := sample()
	w.Duration = 100
	w.Samples = []profile.Sample{{Time: 60, Stack: 1, Weight: 20}, {Time: 25, Stack: 0, Thread: 1, Weight: 20}, {Time: 70, Stack: 1, Weight: 20}}
	return w
}

func TestWrite(t *testing.T) {
	tests := []struct {
		name    string
		window  *profile.Window
		options speedscope.Options
	}{
		{"values", sample(), speedscope.Options{Name: "shop"}},
		{"threads", sample(), speedscope.Options{Thread: true}},
		{"timed", timed(), speedscope.Options{}},
		{"empty", &profile.Window{Head: profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}}}, speedscope.Options{Thread: true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got bytes.Buffer
			if err := speedscope.Write(&got, test.window, test.options); err != nil {
				t.Fatal(err)
			}
			checkFile(t, got.Bytes())
			golden := filepath.Join("testdata", test.name+".speedscope.json")
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

func TestRealProfile(t *testing.T) {
	w, err := perfscript.Read(bytes.NewReader(corpus.Read("perf/default.txt")))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := speedscope.Write(&got, w, speedscope.Options{}); err != nil {
		t.Fatal(err)
	}
	f := checkFile(t, got.Bytes())
	total := 0.0
	for _, p := range f.Profiles {
		for i, s := range p.Samples {
			if len(s) > 0 {
				total += p.Weights[i]
			}
		}
		if d := time.Duration(p.End - p.Start); d < w.Duration/2 {
			t.Errorf("%s spans %s of %s", p.Name, d, w.Duration)
		}
	}
	// Samples closer together than their weight overlap: a little may be cut.
	if sum := float64(w.Total(0)); total < 0.9*sum || total > sum {
		t.Errorf("weights add up to %g of %g", total, sum)
	}
}

// schema is what the published file format (speedscope, src/lib/file-format-spec.ts) demands.
type schema struct {
	Schema string `json:"$schema"`
	Shared struct {
		Frames []struct {
			Name *string
			File *string
			Line *float64
			Col  *float64
		}
	}
	Profiles []struct {
		Type    string
		Name    string
		Unit    string
		Start   float64 `json:"startValue"`
		End     float64 `json:"endValue"`
		Samples [][]int
		Weights []float64
	}
	Name     string
	Active   int `json:"activeProfileIndex"`
	Exporter string
}

func checkFile(t *testing.T, data []byte) schema {
	t.Helper()
	var f schema
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		t.Fatal(err)
	}
	if f.Schema != "https://www.speedscope.app/file-format-schema.json" {
		t.Errorf("schema %q", f.Schema)
	}
	if len(f.Profiles) == 0 || f.Active >= len(f.Profiles) {
		t.Fatalf("%d profiles, %d active", len(f.Profiles), f.Active)
	}
	for _, fr := range f.Shared.Frames {
		if fr.Name == nil {
			t.Error("a frame without a name")
		}
	}
	for _, p := range f.Profiles {
		switch p.Unit {
		case "none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes":
		default:
			t.Errorf("unit %q", p.Unit)
		}
		if p.Type != "sampled" || p.Name == "" || p.Samples == nil || len(p.Samples) != len(p.Weights) {
			t.Fatalf("profile %+v", p)
		}
		sum := 0.0
		for i, s := range p.Samples {
			sum += p.Weights[i]
			if p.Weights[i] <= 0 {
				t.Errorf("weight %g", p.Weights[i])
			}
			for _, index := range s {
				if index < 0 || index >= len(f.Shared.Frames) {
					t.Errorf("frame %d of %d", index, len(f.Shared.Frames))
				}
			}
		}
		if p.Start+sum != p.End {
			t.Errorf("%s: weights reach from %g to %g, not %g", p.Name, p.Start, p.Start+sum, p.End)
		}
	}
	return f
}

func TestWriteRefuses(t *testing.T) {
	negative := sample()
	negative.Rows.At(0).Values[1] = -1
	for want, w := range map[string]*profile.Window{"no negative values": negative, "no value types": {}} {
		if err := speedscope.Write(&bytes.Buffer{}, w, speedscope.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
}
