package rows

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestHeader compares the numbers that the BPF unwinder compiles with ours.
func TestHeader(t *testing.T) {
	src, err := os.ReadFile("../../../bpf/include/unwind_rules.h")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^#define UNWIND_(\w+) (\w+)$`).FindAllSubmatch(src, -1) {
		if got[string(m[1])], err = strconv.ParseUint(string(m[2]), 0, 32); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
	want := map[string]uint64{
		"GAP": uint64(Gap), "SP": uint64(SP), "BP": uint64(BP), "PLT": uint64(PLT),
		"SIGNAL": uint64(Signal), "UNSUPPORTED": uint64(Unsupported), "END": uint64(End),
		"BP_DEREF": uint64(BPDeref), "FRAME_POINTER": uint64(FramePointer),
		"SP_DEREF": uint64(SPDeref), "LEAF_REG": uint64(LeafReg), "RETURN_REG": uint64(ReturnReg), "FORK": uint64(Fork),
		"CFA_BITS": rbpShift, "RBP_BITS": typeShift - rbpShift,
		"TYPE_SHIFT": typeShift, "RBP_SHIFT": rbpShift, "RBP_MASK": rbpMask, "CFA_MASK": MaxCFA,
		"HIGH_SHIFT": highShift, "HIGH_MASK": MaxHigh, "LOW_MASK": lowMask,
		"RBP_SAME": RBPSame, "RBP_MAX": RBPMax, "RBP_LOST": RBPLost, "RBP_AT_RBP": RBPAtRBP,
	}
	for name, w := range want {
		if g, ok := got[name]; !ok || g != w {
			t.Errorf("UNWIND_%s is %d, want %d", name, g, w)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("UNWIND_%s is unknown here", name)
		}
	}
}

func TestRuleFields(t *testing.T) {
	r := NewRule(BP, 17, 0xabcde)
	if r.Type() != BP || r.RBP() != 17 || r.CFA() != 0xabcde {
		t.Errorf("%#x has type %d, rbp %d, cfa %#x", r, r.Type(), r.RBP(), r.CFA())
	}
	r = NewSplitRule(LeafReg, RBPLost, 10, -3)
	if r.Type() != LeafReg || r.RBP() != RBPLost || r.High() != 10 || r.Low() != -3 {
		t.Errorf("%#x has type %d, rbp %d, high %d, low %d", r, r.Type(), r.RBP(), r.High(), r.Low())
	}
	w := NewRow(0xfedcba98, r)
	if w.Offset() != 0xfedcba98 || w.Rule() != r {
		t.Errorf("%#x has offset %#x, rule %#x", w, w.Offset(), w.Rule())
	}
}
