package profile

import (
	"slices"
	"testing"
)

// TestBaseIsEncoded asserts that every base survives its encoding, and that the usual one
// of a kind takes no room in it.
func TestBaseIsEncoded(t *testing.T) {
	for _, kind := range []ValueType{CPUTime(10), {Kind: "cpu", Unit: "count"}, {Kind: "off-cpu", Unit: "nanoseconds"}} {
		for _, base := range []Base{BaseNone, BaseCPU, BaseWall, BaseRunQueue, BaseBytes, "of a later version"} {
			was, is := kind, kind
			was.Base = base
			is.DecodeBase(was.EncodedBase())
			if is != was {
				t.Errorf("%+v is read as %+v", was, is)
			}
		}
	}
	if e := (&ValueType{Kind: "page-faults", Unit: "count"}).EncodedBase(); e != "" {
		t.Errorf("no base is written as %q", e)
	}
	cpu := CPUTime(1)
	if e := cpu.EncodedBase(); e != "" {
		t.Errorf("the base of CPU time is written as %q", e)
	}
}

// TestCommentsBecomeFields reads what earlier versions stated in comments.
func TestCommentsBecomeFields(t *testing.T) {
	h := Head{Types: []ValueType{CPUTime(1), {Kind: "page-faults", Unit: "count"}}, Comments: []string{"host: a", partOfCPUComment, farewellComment}}
	h.ReadComments()
	if !h.Farewell || h.Types[0].Base != BaseNone {
		t.Errorf("farewell %v, base %q", h.Farewell, h.Types[0].Base)
	}
	if want := []string{"host: a", partOfCPUComment}; !slices.Equal(h.Comments, want) {
		t.Errorf("comments %q, want %q", h.Comments, want)
	}
	old := Head{Comments: h.OldComments(), Types: []ValueType{CPUTime(1)}}
	if old.ReadComments(); !old.Farewell || len(old.Comments) != 2 {
		t.Errorf("a peer of an earlier version sends farewell %v, comments %q", old.Farewell, old.Comments)
	}
}

// TestMergeClearsBases merges a window of all CPU time with one of user code only: their
// sum is no part of an exact total.
func TestMergeClearsBases(t *testing.T) {
	whole, part := &Window{Head: Head{Types: []ValueType{CPUTime(1)}}}, &Window{Head: Head{Types: []ValueType{CPUTime(1)}, Farewell: true}}
	part.MarkPartOfCPU()
	sum, err := Merge(whole, part)
	if err != nil || sum.Types[0].Base != BaseNone || !sum.Farewell {
		t.Errorf("%+v, %v", sum.Head, err)
	}
	level := &Window{Head: Head{Types: []ValueType{{Kind: "cpu", Unit: "nanoseconds", Temporality: Level}}}}
	if _, err := Merge(whole, level); err == nil {
		t.Error("a level is merged with a delta")
	}
}

// TestExactOf returns the total of each base.
func TestExactOf(t *testing.T) {
	e := Exact{CPU: 1, Wall: 2, RunQueue: 3, Bytes: 4}
	e.Add(e)
	for base, want := range map[Base]int64{BaseNone: 0, BaseCPU: 2, BaseWall: 4, BaseRunQueue: 6, BaseBytes: 8, "other": 0} {
		if got := e.Of(base); got != want {
			t.Errorf("of %q: %d, want %d", base, got, want)
		}
	}
}
