package cfi

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// rulesOf lists the rows of a crafted file as "offset in the code:rule".
func rulesOf(t *testing.T, parts ...part) (string, *rows.Table) {
	t.Helper()
	tab := buildBytes(t, craft(make([]byte, 0x100), parts...))
	var list []string
	for _, r := range tab.Rows {
		list = append(list, rowText(r))
	}
	return strings.Join(list, " "), tab
}

func rowText(r rows.Row) string { return fmt.Sprintf("%d:%s", int(r.Offset())-codeOff, text(r.Rule())) }

func text(r rows.Rule) string {
	rbp := ""
	switch n := r.RBP(); n {
	case rows.RBPSame:
	case rows.RBPLost:
		rbp = ",lost"
	case rows.RBPAtRBP:
		rbp = ",*rbp"
	default:
		rbp = fmt.Sprintf(",c-%d", 8*int(n))
	}
	switch r.Type() {
	case rows.Gap:
		return "gap"
	case rows.SP:
		return fmt.Sprintf("rsp+%d%s", 8*r.CFA(), rbp)
	case rows.BP:
		return fmt.Sprintf("rbp+%d%s", 8*r.CFA(), rbp)
	case rows.PLT:
		return fmt.Sprintf("plt%d%s", r.CFA(), rbp)
	case rows.Signal:
		return "signal"
	case rows.Unsupported:
		return "unsupported"
	case rows.End:
		return "end"
	case rows.Fork:
		return "fork"
	case rows.BPDeref:
		return fmt.Sprintf("*(rbp%+d)+%d%s", 8*int(r.Low()), 8*int(r.High()), rbp)
	case rows.FramePointer:
		return "fp"
	case rows.SPDeref:
		return fmt.Sprintf("*(rsp%+d)+%d%s", 8*int(r.Low()), 8*int(r.High()), rbp)
	case rows.LeafReg:
		return fmt.Sprintf("r%d%+d%s", r.High(), 8*int(r.Low()), rbp)
	case rows.ReturnReg:
		return fmt.Sprintf("rsp%+d%s,ra=r%d", 8*int(r.Low()), rbp, r.High())
	}
	return fmt.Sprintf("%#x", uint32(r))
}

func TestInstructions(t *testing.T) {
	expr := func(op byte, code ...byte) []byte { return append([]byte{op, byte(len(code))}, code...) }
	regExpr := func(reg byte, code ...byte) []byte { return append([]byte{cfaExpr, reg, byte(len(code))}, code...) }
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, c := range []struct {
		name string
		code []byte
		want string
		odd  string // what is counted as unsupported
	}{
		{"leaf", nil, "0:rsp+8", ""},
		{"frame pointer", []byte{
			cfaAdvance | 1, cfaDefOffset, 16, cfaOffset | regRBP, 2,
			cfaAdvance | 3, cfaDefReg, regRBP,
			cfaAdvance1, 20, cfaRemember, cfaDef, regRSP, 8, cfaRestore | regRBP,
			cfaAdvance2, 1, 0, cfaRecall,
		}, "0:rsp+8 1:rsp+16,c-16 4:rbp+16,c-16 24:rsp+8 25:rbp+16,c-16", ""},
		{"other ways to say it", []byte{
			cfaAdvance4, 2, 0, 0, 0, cfaDefSF, regRSP, 0x7e /* -2 * -8 */, cfaOffsetExt, regRBP, 3,
			cfaAdvance8, 2, 0, 0, 0, 0, 0, 0, 0, cfaDefOffSF, 0x7d, cfaOffsetSF, regRBP, 4,
			cfaAdvance | 1, cfaOffsetNeg, regRBP, 0x78, cfaRestoreExt, regRBP, cfaArgsSize, 9,
			cfaAdvance | 1, cfaSame, regRBP,
		}, "0:rsp+8 2:rsp+16,c-24 4:rsp+24,c-32 5:rsp+24", ""},
		{"rbp lost", []byte{
			cfaAdvance | 1, cfaUndefined, regRBP, cfaAdvance | 1, cfaRegister, regRBP, 3,
			cfaAdvance | 1, cfaRestore | regRBP, cfaAdvance | 1, cfaValOffset, regRBP, 2,
		}, "0:rsp+8 1:rsp+8,lost 3:rsp+8 4:rsp+8,lost", "rbp:2"},
		{"rbp far away", []byte{cfaOffset | regRBP, 0xfb, 1}, "0:rsp+8,lost", "rbp:1"},
		{"outermost", []byte{cfaUndefined, regRA}, "0:end", ""},
		{"return address elsewhere", []byte{cfaAdvance | 1, cfaOffset | regRA, 2, cfaAdvance | 1, cfaRegister, regRA, 17}, "0:rsp+8 1:unsupported", "return address not at cfa-8:2"},
		{"return address in a register", []byte{cfaAdvance | 1, cfaDefOffset, 0, cfaRegister, regRA, 5, cfaAdvance | 2, cfaDefOffset, 8}, "0:rsp+8 1:rsp+0,ra=r5 3:rsp+8,ra=r5", ""},
		{"return address and stack in registers", []byte{cfaDef, 5, 0, cfaRegister, regRA, 1}, "0:unsupported", "return address in a register:1"},
		{"stub", expr(cfaDefExpr, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22), "0:plt11", ""},
		{"stub with endbr64", expr(cfaDefExpr, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3a, 0x2a, 0x33, 0x24, 0x22), "0:plt10", ""},
		{"signal", cat(expr(cfaDefExpr, 0x77, 0xa0, 1, opDeref), regExpr(regRA, 0x77, 0xa8, 1), regExpr(regRBP, 0x77, 0xf8, 0)), "0:signal", ""},
		{"realigned", cat([]byte{cfaDef, 10, 0, cfaAdvance | 5}, regExpr(regRBP, 0x76, 0), []byte{cfaAdvance | 1}, expr(cfaDefExpr, 0x76, 0x78, opDeref)),
			"0:r10+0 5:r10+0,*rbp 6:*(rbp-8)+0,*rbp", ""},
		{"loaded from rsp", expr(cfaDefExpr, 0x77, 40, opDeref, opPlusUconst, 8), "0:*(rsp+40)+8", ""},
		{"loaded from the red zone", expr(cfaDefExpr, 0x77, 0x78, opDeref, opPlusUconst, 8), "0:*(rsp-8)+8", ""},
		{"loaded from rbp and more", expr(cfaDefExpr, 0x76, 0xd8, 0, opDeref, opLit0+8, opPlus), "0:*(rbp+88)+8", ""},
		{"computed", expr(cfaDefExpr, 0x77, 8, opConst1u, 24, opPlus, opLit0+8, opMinus, opNop), "0:rsp+24", ""},
		{"too much loaded", expr(cfaDefExpr, 0x77, 0, opDeref, opPlusUconst, 0x80, 1), "0:unsupported", "cfa added to what was loaded:1"},
		{"indexed", expr(cfaDefExpr, 0x77, 8, 0x79, 0, 0x38, 0x1e, opPlus, opDeref), "0:unsupported", "cfa expression:1"},
		{"loaded twice", expr(cfaDefExpr, 0x77, 8, opDeref, opDeref), "0:unsupported", "cfa expression:1"},
		{"loaded from rbx", expr(cfaDefExpr, 0x73, 8, opDeref), "0:unsupported", "cfa loaded from another register:1"},
		{"empty", expr(cfaDefExpr), "0:unsupported", "cfa expression:1"},
		{"odd offset", []byte{cfaDefOffset, 12}, "0:unsupported", "cfa not a multiple of 8:1"},
		{"huge frame", []byte{cfaDefOffset, 0x80, 0x80, 0x80, 8}, "0:unsupported", "cfa offset:1"},
		{"vector register", []byte{cfaDefReg, 17}, "0:unsupported", "cfa register:1"},
		{"unknown instruction", []byte{cfaAdvance | 4, 0x3b}, "0:rsp+8 4:unsupported", "instruction:1"},
		{"nothing to recall", []byte{cfaAdvance | 4, cfaRecall}, "0:rsp+8 4:unsupported", "instruction:1"},
		{"beyond the end", []byte{cfaAdvance1, 64, cfaDefOffset, 16}, "0:rsp+8", ""},
		{"cut off", []byte{cfaAdvance | 4, cfaDef, regRSP}, "0:rsp+8 4:unsupported", "instruction:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, tab := rulesOf(t, part{".eh_frame", frames(dataAddr, 64, c.code...)})
			if want := c.want + " 64:gap"; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			odd := ""
			for k, n := range tab.Unsupported {
				odd += fmt.Sprintf("%s:%d", k, n)
			}
			if odd != c.odd {
				t.Errorf("unsupported: %q, want %q", odd, c.odd)
			}
		})
	}
}

func TestPointerEncodings(t *testing.T) {
	uleb := func(v uint64) []byte {
		var b []byte
		for ; v >= 0x80; v >>= 7 {
			b = append(b, byte(v)|0x80)
		}
		return append(b, byte(v))
	}
	const pos = 24 // size of plainCIE; the address is 8 bytes further on
	distance := int64(codeAddr - dataAddr - pos - 8)
	back32, back64 := u32(uint64(distance)), u64(uint64(distance))
	for name, c := range map[string]struct {
		enc        byte
		addr, size []byte
	}{
		"absolute":       {encAbs, u64(codeAddr), u64(64)},
		"udata4":         {encU32, u32(codeAddr), u32(64)},
		"udata8":         {encU64, u64(codeAddr), u64(64)},
		"uleb":           {encULEB, uleb(codeAddr), uleb(64)},
		"pcrel sdata4":   {encPCRel | encS32, back32, u32(64)},
		"pcrel sdata8":   {encPCRel | encS64, back64, u64(64)},
		"textrel udata2": {encTextRel | encU16, []byte{0, 0}, []byte{64, 0}},
		"textrel sdata2": {encTextRel | encS16, []byte{0, 0}, []byte{64, 0}},
		"textrel sleb":   {encTextRel | encSLEB, []byte{0}, []byte{0xc0, 0}},
		"funcrel":        {encFuncRel | encU32, u32(codeAddr), u32(64)},
	} {
		t.Run(name, func(t *testing.T) {
			cie := plainCIE(c.enc)
			if len(cie) != pos {
				t.Fatalf("the CIE has %d bytes", len(cie))
			}
			b := append(cie, chunk(u32(pos+4), c.addr, c.size, []byte{0}, []byte{cfaAdvance | 1, cfaDefOffset, 16})...)
			if got, _ := rulesOf(t, part{".eh_frame", b}); got != "0:rsp+8 1:rsp+16 64:gap" {
				t.Error(got)
			}
		})
	}
	t.Run("indirect", func(t *testing.T) {
		b := append(plainCIE(encIndirect|encU64), chunk(u32(pos+4), u64(codeAddr), u64(64), []byte{0})...)
		if got, _ := rulesOf(t, part{".eh_frame", b}); got != "" {
			t.Error(got)
		}
	})
}

func TestSections(t *testing.T) {
	fde := func(parts ...[]byte) []byte { return chunk(parts...) }
	wide := func(b []byte) []byte { return append(append(u32(0xffffffff), u64(uint64(len(b)-4))...), b[4:]...) }
	// The letters say: personality (encoding and 4 bytes), LSDA, FDE encoding.
	withPersonality := chunk(u32(0), []byte("\x01zPLR\x00\x01\x78\x10\x07\x9b\x01\x02\x03\x04\x1b"), []byte{encU32}, entryRules)
	eh := func(cie []byte, tail ...[]byte) []byte {
		return append(slices.Clone(cie), fde(append([][]byte{u32(uint64(len(cie) + 4))}, tail...)...)...)
	}
	old := chunk(u32(0), []byte("\x01eh\x00"), u64(1), []byte{1, 0x78, regRA}, entryRules)
	v3 := chunk(u32(0), []byte("\x03\x00\x01\x78\x10"), entryRules)
	v4 := chunk(u32(0), []byte("\x04\x00\x08\x00\x01\x78\x10"), entryRules)
	v9 := chunk(u32(0), []byte("\x09\x00\x01\x78\x10"), entryRules)
	column := chunk(u32(0), []byte("\x03\x00\x01\x78\x11"), entryRules)
	letters := chunk(u32(0), []byte("\x01q\x00\x01\x78\x10"), entryRules)
	debugCIE := chunk(u32(0xffffffff), []byte("\x04\x00\x08\x00\x01\x78\x10"), entryRules)
	setLoc := eh(v3, u64(codeAddr), u64(64), []byte{cfaSetLoc}, u64(codeAddr+8), []byte{cfaDefOffset, 16})
	normal := eh(v3, u64(codeAddr), u64(64))
	for _, c := range []struct {
		name, section string
		data          []byte
		want          string
	}{
		{"version 3", ".eh_frame", normal, "0:rsp+8 64:gap"},
		{"version 4", ".eh_frame", eh(v4, u64(codeAddr), u64(64)), "0:rsp+8 64:gap"},
		{"gcc 2", ".eh_frame", eh(old, u64(codeAddr), u64(64)), "0:rsp+8 64:gap"},
		{"personality", ".eh_frame", eh(withPersonality, u32(codeAddr), u32(64), []byte{4, 1, 2, 3, 4}), "0:rsp+8 64:gap"},
		{"set_loc", ".eh_frame", setLoc, "0:rsp+8 8:rsp+16 64:gap"},
		{"unknown version", ".eh_frame", eh(v9, u64(codeAddr), u64(64)), "0:unsupported 64:gap"},
		{"unknown augmentation", ".eh_frame", eh(letters, u64(codeAddr), u64(64)), "0:unsupported 64:gap"},
		{"other return address", ".eh_frame", eh(column, u64(codeAddr), u64(64)), "0:unsupported 64:gap"},
		{"terminator in the middle", ".eh_frame", append(u32(0), normal...), "0:rsp+8 64:gap"},
		{"64-bit lengths", ".eh_frame", func() []byte {
			c := wide(v3)
			return append(c, wide(fde(u32(uint64(len(c)+12)), u64(codeAddr), u64(64)))...)
		}(), "0:rsp+8 64:gap"},
		{"discarded function", ".eh_frame", append(slices.Clone(normal), fde(u32(uint64(len(normal)+4)), u64(0), u64(64))...), "0:rsp+8 64:gap"},
		{"empty function", ".eh_frame", append(slices.Clone(normal), fde(u32(uint64(len(normal)+4)), u64(codeAddr+8), u64(0))...), "0:rsp+8 64:gap"},
		{"two functions", ".eh_frame", append(slices.Clone(normal), fde(u32(uint64(len(normal)+4)), u64(codeAddr+80), u64(8), []byte{cfaDefOffset, 32})...), "0:rsp+8 64:gap 80:rsp+32 88:gap"},
		{"overlapping functions", ".eh_frame", append(slices.Clone(normal), fde(u32(uint64(len(normal)+4)), u64(codeAddr+16), u64(8), []byte{cfaDefOffset, 32})...), "0:rsp+8 16:rsp+32 24:gap"},
		{"beyond the segment", ".eh_frame", eh(v3, u64(codeAddr), u64(1<<40)), "0:rsp+8 256:gap"},
		{"cut off", ".eh_frame", normal[:len(normal)-3], ""},
		{"no CIE", ".eh_frame", fde(u32(4), u64(codeAddr), u64(64)), ""},
		{"debug_frame", ".debug_frame", append(slices.Clone(debugCIE), fde(u32(0), u64(codeAddr), u64(64))...), "0:rsp+8 64:gap"},
		{"debug_frame, CIE behind", ".debug_frame", append(fde(u32(24), u64(codeAddr), u64(64)), debugCIE...), "0:rsp+8 64:gap"},
		{"debug_frame, 64 bits", ".debug_frame", func() []byte {
			cie := append(append(u32(0xffffffff), u64(8+7+5)...), append(u64(1<<64-1), append([]byte("\x04\x00\x08\x00\x01\x78\x10"), entryRules...)...)...)
			return append(cie, append(append(u32(0xffffffff), u64(24)...), append(u64(0), append(u64(codeAddr), u64(64)...)...)...)...)
		}(), "0:rsp+8 64:gap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, _ := rulesOf(t, part{c.section, c.data}); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestBoth lets .eh_frame win, and .debug_frame fill what it leaves.
func TestBoth(t *testing.T) {
	debugCIE := chunk(u32(0xffffffff), []byte("\x04\x00\x08\x00\x01\x78\x10"), entryRules)
	debug := append(slices.Clone(debugCIE), chunk(u32(0), u64(codeAddr), u64(16), []byte{cfaDefOffset, 64})...)
	debug = append(debug, chunk(u32(0), u64(codeAddr+128), u64(16), []byte{cfaDefOffset, 80})...)
	got, tab := rulesOf(t, part{".eh_frame", frames(dataAddr, 64)}, part{".debug_frame", debug})
	if got != "0:rsp+8 64:gap 128:rsp+80 144:gap" || tab.Source != "eh_frame+debug_frame" {
		t.Errorf("%s from %s", got, tab.Source)
	}
}

func TestOverlay(t *testing.T) {
	a, b := rows.NewRule(rows.SP, 0, 1), rows.NewRule(rows.SP, 0, 2)
	gap := rows.NewRule(rows.Gap, 0, 0)
	for name, c := range map[string]struct{ top, bottom, want []rows.Row }{
		"nothing":    {nil, nil, nil},
		"only top":   {[]rows.Row{rows.NewRow(1, a), rows.NewRow(2, gap)}, nil, []rows.Row{rows.NewRow(1, a), rows.NewRow(2, gap)}},
		"fills":      {[]rows.Row{rows.NewRow(1, a), rows.NewRow(5, gap), rows.NewRow(9, a), rows.NewRow(12, gap)}, []rows.Row{rows.NewRow(0, b), rows.NewRow(20, gap)}, []rows.Row{rows.NewRow(0, b), rows.NewRow(1, a), rows.NewRow(5, b), rows.NewRow(9, a), rows.NewRow(12, b), rows.NewRow(20, gap)}},
		"same rule":  {[]rows.Row{rows.NewRow(1, a), rows.NewRow(5, gap)}, []rows.Row{rows.NewRow(5, a), rows.NewRow(9, gap)}, []rows.Row{rows.NewRow(1, a), rows.NewRow(9, gap)}},
		"all hidden": {[]rows.Row{rows.NewRow(1, a), rows.NewRow(9, gap)}, []rows.Row{rows.NewRow(2, b), rows.NewRow(5, gap)}, []rows.Row{rows.NewRow(1, a), rows.NewRow(9, gap)}},
	} {
		if got := rows.Overlay(c.top, c.bottom); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %#x, want %#x", name, got, c.want)
		}
	}
}

// TestIndex builds pages for rows of any density.
func TestIndex(t *testing.T) {
	for name, gaps := range map[string][]uint32{
		"dense":        {1},
		"sparse":       {100000},
		"mixed":        {1, 1, 1, 1, 5000},
		"page borders": {4096, 4096, 1},
	} {
		var all []rows.Row
		off := uint32(0x1234)
		for i := range 5000 {
			all = append(all, rows.NewRow(off, rows.NewRule(rows.SP, 0, uint32(1+i%2))))
			off += gaps[i%len(gaps)]
		}
		tab := &rows.Table{Unsupported: map[string]int{}}
		tab.SetRows(all)
		check(t, tab)
		if len(tab.Unsupported) > 0 {
			t.Errorf("%s: %v", name, tab.Unsupported)
		}
		if _, ok := tab.Find(0x1233); ok {
			t.Errorf("%s: found a rule before the first row", name)
		}
		if _, ok := tab.Find(1<<32 - 1); !ok {
			t.Errorf("%s: the last row does not hold to the end", name)
		}
	}
	// Far apart and dense: no page size is right, the index stays bounded.
	var all []rows.Row
	for i := range uint32(3000) {
		all = append(all, rows.NewRow(i, rows.NewRule(rows.SP, 0, 1+i%2)))
	}
	all = append(all, rows.NewRow(0xfffffff0, rows.NewRule(rows.Gap, 0, 0)))
	tab := &rows.Table{Unsupported: map[string]int{}}
	tab.SetRows(all)
	check(t, tab)
	if len(tab.Index) > 2<<22 {
		t.Errorf("%d pages", len(tab.Index))
	}
}
