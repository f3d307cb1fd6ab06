package codec

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/store"
)

// kept is a window as the engine has it, its rows' stacks being leaves.
func kept(seed uint64) (*store.Window, Leaves) {
	w := profiletest.Random(rand.New(rand.NewPCG(seed, 4)))
	k := &store.Window{Head: w.Head, Threads: w.Threads, Contexts: w.Contexts, Exemplars: w.Exemplars, Scales: []int64{3, 1}}
	if seed%3 == 0 {
		k.Minutes = store.Minutes{29_000_000: true, 29_000_007: true}
	}
	k.Head.Start, k.Head.Target, k.Head.Task = time.Time{}, nil, "" // are in the key
	var l Leaves
	for _, r := range w.Rows.All() {
		l.Rows = append(l.Rows, uint32(r.Stack)*1000)
		if w.Rows.Peer != nil {
			l.Peers = append(l.Peers, uint32(r.Peer)*1000)
		}
		r.Values[0] *= 3
		r.Squares[0] = profile.Alike(r.N, r.Values[0]) + float64(r.N*7*9)
	}
	for _, e := range w.Exemplars {
		l.Exemplars = append(l.Exemplars, uint32(e.Stack)*1000)
	}
	k.Rows = w.Rows
	if seed%3 == 1 { // several were added up
		k.Of = 2
		for i, v := range k.Rows.Values {
			part := v / 6 * 3
			k.Groups = append(k.Groups, 0, part, 0, 0, 0, v-part, 0, int64(i%2))
			k.Groups[len(k.Groups)-1] *= k.Scales[i%2]
			k.Groups[len(k.Groups)-3] -= k.Groups[len(k.Groups)-1]
		}
	}
	return k, l
}

// leavesOf returns the leaves of a decoded window, which has them in place of stacks.
func leavesOf(w *store.Window) (l Leaves) {
	for _, leaf := range w.Rows.Stack {
		l.Rows = append(l.Rows, uint32(leaf))
	}
	for _, peer := range w.Rows.Peer {
		l.Peers = append(l.Peers, uint32(peer))
	}
	for _, e := range w.Exemplars {
		l.Exemplars = append(l.Exemplars, uint32(e.Stack))
	}
	return l
}

// FuzzWindow decodes what nobody encoded: false, or a window that is the same
// bytes once it is encoded. A merge reads no more of it than a scan.
func FuzzWindow(f *testing.F) {
	for seed := range uint64(4) {
		k, l := kept(seed)
		f.Add(EncodeWindow(k, l))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w, ok := DecodeWindow(data)
		if !ok {
			return
		}
		again, ok := DecodeWindow(EncodeWindow(&w, leavesOf(&w)))
		if !ok || len(again.Rows.Stack) != len(w.Rows.Stack) || len(again.Threads) != len(w.Threads) {
			t.Fatalf("%d rows, written and read again %d, %v", len(w.Rows.Stack), len(again.Rows.Stack), ok)
		}
		for _, ty := range w.Head.Types {
			var c Columns
			if !c.Read(data, ty.Kind, 1<<32, Parts{true, true, true}) {
				t.Fatalf("a scan reads it, a merge of %q does not", ty.Kind)
			}
			if len(c.Leaves) != len(w.Rows.Stack) || c.Head.Exact != w.Head.Exact || c.Head.Cost != w.Head.Cost {
				t.Fatalf("a merge reads %d rows of %d", len(c.Leaves), len(w.Rows.Stack))
			}
		}
	})
}

func TestWindowsAreWrittenTheSame(t *testing.T) {
	for seed := range uint64(100) {
		k, l := kept(seed)
		data := EncodeWindow(k, l)
		w, ok := DecodeWindow(data)
		if !ok {
			t.Fatalf("seed %d: not read", seed)
		}
		for i, v := range w.Rows.Values {
			for g := range len(w.Groups) / len(w.Rows.Values) {
				v -= w.Groups[i*store.Groups+g]
			}
			if w.Groups != nil && v != 0 || (w.Groups == nil) != (k.Groups == nil) {
				t.Fatalf("seed %d: the groups of value %d lack %d", seed, i, v)
			}
		}
		for at, ty := range w.Head.Types {
			var c Columns
			if !c.Read(data, ty.Kind, 1<<32, Parts{}) {
				t.Fatalf("seed %d: %s is not read", seed, ty.Kind)
			}
			for i, v := range c.Groups {
				if want := w.Groups[(i/store.Groups*2+at)*store.Groups+i%store.Groups]; v*c.Scale != want {
					t.Fatalf("seed %d: group %d of %s has %d, want %d", seed, i, ty.Kind, v*c.Scale, want)
				}
			}
		}
		if again := EncodeWindow(&w, leavesOf(&w)); !bytes.Equal(data, again) {
			t.Errorf("seed %d: %d bytes, written again %d others", seed, len(data), len(again))
		}
		for cut := range len(data) {
			if _, ok := DecodeWindow(data[:cut]); ok {
				t.Errorf("seed %d: the first %d of %d bytes pass for a window", seed, cut, len(data))
			}
		}
	}
}

// TestLargeValues reads the second type of a window whose first type has values of more than
// 32 bits, as time off the CPU has.
func TestLargeValues(t *testing.T) {
	w := &store.Window{Head: profile.Head{Types: []profile.ValueType{{Kind: "off-cpu", Unit: "nanoseconds"}, {Kind: "waits", Unit: "count"}}}, Scales: []int64{1, 1},
		Rows: profile.RowsOf(2, profile.Row{N: 1, Values: []int64{1 << 50, 3}}, profile.Row{N: 2, Values: []int64{7, 4}})}
	var c Columns
	if !c.Read(EncodeWindow(w, Leaves{Rows: []uint32{0, 1}}), "waits", 2, Parts{}) || c.Value[0] != 3 || c.Value[1] != 4 {
		t.Errorf("waits are %v", c.Value)
	}
}

// TestColumns writes numbers of all sizes and reads them again, in as few bytes
// as the format promises.
func TestColumns(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{0, 1, 7, 8, 9, 63, 64, 65, 200} {
		for size := range 65 {
			numbers := make([]uint64, n)
			for i := range numbers {
				numbers[i] = r.Uint64() >> (64 - size + r.IntN(size+1)/2)
				if r.IntN(20) == 0 {
					numbers[i] = r.Uint64() >> r.IntN(64) // one that is out of line
				}
			}
			var w Writer
			w.column(numbers)
			for _, behind := range []int{0, 3, 20} {
				read := Reader{Data: append(bytes.Clone(w), make([]byte, behind)...)}
				got := make([]int64, n)
				readColumn(&read, got)
				if read.Bad || len(read.Data) != behind {
					t.Fatalf("%d numbers of %d bits: %v, %d bytes left of %d", n, size, read.Bad, len(read.Data), behind)
				}
				for i, v := range numbers {
					if uint64(got[i]) != v {
						t.Fatalf("%d numbers of %d bits: number %d is %#x, was %#x", n, size, i, got[i], v)
					}
				}
			}
		}
	}
	for bits, most := range map[int]float64{0: 0.2, 3: 3.3, 8: 8.3} { // of a number, with its share of the block's head
		numbers := make([]uint64, 640)
		for i := range numbers {
			numbers[i] = r.Uint64() & (1<<bits - 1)
		}
		var w Writer
		w.column(numbers)
		if got := 8 * float64(len(w)) / float64(len(numbers)); got > most {
			t.Errorf("numbers of %d bits take %.2f, want at most %.2f", bits, got, most)
		}
	}
}

// TestThrees writes numbers below three, half of them zero: a bit and a half each.
func TestThrees(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{1, 7, 8, 9, 63, 64, 65, 640} {
		numbers := make([]uint64, n)
		for i := range numbers {
			numbers[i] = uint64(r.IntN(2) * (1 + r.IntN(2)))
		}
		var w Writer
		w.column(numbers)
		read, got := Reader{Data: w}, make([]uint32, n)
		if readColumn(&read, got); read.Bad || len(read.Data) > 0 {
			t.Fatalf("%d numbers: %v, %d bytes left", n, read.Bad, len(read.Data))
		}
		for i, v := range numbers {
			if uint64(got[i]) != v {
				t.Fatalf("%d numbers: number %d is %d, was %d", n, i, got[i], v)
			}
		}
		if each := 8 * float64(len(w)) / float64(n); n == 640 && each > 1.75 { // and the blocks' heads
			t.Errorf("%.2f bits each", each)
		}
	}
}

// FuzzColumn reads a column that nobody wrote.
func FuzzColumn(f *testing.F) {
	var w Writer
	w.column([]uint64{1, 2, 3, 1 << 40})
	f.Add([]byte(w), 4)
	f.Add([]byte{threes, 0b1011, 0b101}, 4)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		if n < 0 || n > 1000 {
			return
		}
		r := Reader{Data: data}
		numbers := make([]int64, n)
		if readColumn(&r, numbers); r.Bad {
			return
		}
		var w Writer
		raw := make([]uint64, n)
		for i, v := range numbers {
			raw[i] = uint64(v)
		}
		w.column(raw)
		again := make([]int64, n)
		if r := (Reader{Data: w}); true {
			if readColumn(&r, again); r.Bad || !slices.Equal(numbers, again) {
				t.Fatalf("%v, written and read again %v, %v", numbers, again, r.Bad)
			}
		}
	})
}

// TestLaterVersions reads windows in which a later version has appended something, or
// used a word that this one does not know.
func TestLaterVersions(t *testing.T) {
	w := &store.Window{Head: profile.Head{Design: profile.DesignRandomised, Losses: []profile.Loss{{Reason: "evicted", N: 3}}}}
	data := EncodeWindow(w, Leaves{})
	got, ok := DecodeWindow(append(bytes.Clone(data), "of tomorrow"...))
	if !ok || got.Head.Design != w.Head.Design || len(got.Head.Losses) != 1 || got.Head.Losses[0] != w.Head.Losses[0] {
		t.Errorf("what is appended spoils the window: %+v, %v", got.Head, ok)
	}
	var later Writer
	later.Number(uint64(len(words)) + 1)
	if r := (Reader{Data: later}); r.Word() != otherWord || r.Bad {
		t.Error("a later word spoils what it stands in")
	}
}
