package cfi

import (
	"fmt"
	"strings"
	"testing"
)

// show writes rules as readelf would: the frame address, then rbp.
func show(rows []Row) string {
	var out []string
	for _, r := range rows {
		at, rule := r.Offset()-codeOff, r.Rule()
		text := map[Type]string{Gap: "-", End: "end", FramePointer: "fp"}[rule.Type()]
		switch rule.Type() {
		case SP:
			text = fmt.Sprintf("sp+%d", rule.CFA()*8)
		case BP:
			text = fmt.Sprintf("bp+%d", rule.CFA()*8)
		case ReturnReg:
			text = fmt.Sprintf("ra=r%d,sp+%d", rule.High(), rule.Low()*8)
		}
		switch n := rule.RBP(); {
		case n == RBPLost:
			text += ",lost"
		case n != RBPSame:
			text += fmt.Sprintf(",c-%d", 8*int(n))
		}
		out = append(out, fmt.Sprintf("%d:%s", at, text))
	}
	return strings.Join(out, " ")
}

func TestWalk(t *testing.T) {
	const (
		push      = "53"          // push %rbx
		pop       = "5b"          // pop %rbx
		ret       = "c3"          //
		sub24     = "48 83 ec 18" // sub $24,%rsp
		add24     = "48 83 c4 18" // add $24,%rsp
		pushFrame = "55"          // push %rbp
		setFrame  = "48 89 e5"    // mov %rsp,%rbp
	)
	for _, c := range []struct {
		name string
		fns  []fn
		want string
	}{
		{"leaf", []fn{{"f", "31 c0" + ret}}, "0:sp+8 3:-"},
		{"pushes", []fn{{"f", push + sub24 + add24 + pop + ret}}, "0:sp+8 1:sp+16 5:sp+40 9:sp+16 10:sp+8 11:-"},
		{"frame", []fn{{"f", pushFrame + setFrame + "48 29 c4" + "c9" + ret}}, "0:sp+8 1:sp+16,c-16 7:bp+16,c-16 8:sp+8 9:-"},
		{"rbp as a variable", []fn{{"f", pushFrame + "31 ed" + "5d" + ret}}, "0:sp+8 1:sp+16,c-16 4:sp+8 5:-"},
		{"rbp saved by mov", []fn{{"f", sub24 + "48 89 6c 24 10" + "31 ed" + "48 8b 6c 24 10" + add24 + ret}},
			"0:sp+8 4:sp+32 9:sp+32,c-16 16:sp+32 20:sp+8 21:-"},
		{"branch", []fn{{"f", push + "74 02" + "31 c0" + pop + ret}}, "0:sp+8 1:sp+16 6:sp+8 7:-"},
		{"branches that disagree", []fn{{"f", "74 01" + push + pop + ret}}, ""},
		{"returns with a frame", []fn{{"f", push + ret}}, ""},
		{"returns without the caller's rbp", []fn{{"f", "31 ed" + ret}}, ""},
		{"unknown rsp", []fn{{"f", "48 89 c4" + ret}}, ""},
		{"into an instruction", []fn{{"f", "74 ff" + ret}}, ""},
		{"no instruction", []fn{{"f", "06" + ret}}, ""},
		{"table of cases", []fn{{"f", push + "ff 24 c5 00 00 40 00" + "0f 1f 00" + "31 c0" + pop + ret + "31 c9" + pop + ret}},
			"0:sp+8 1:sp+16 14:sp+8 15:sp+16 18:sp+8 19:-"},
		{"code that nothing reaches", []fn{{"f", ret + "31 c0" + ret}}, "0:sp+8 1:-"},
		{"tail call", []fn{{"f", push + pop + "eb 00"}, {"g", ret}}, "0:sp+8 1:sp+16 2:sp+8 5:-"},
		{"tail call with a frame", []fn{{"f", push + "eb 00"}, {"g", ret}}, "3:sp+8 4:-"},
		{"call that does not return", []fn{{"f", push + "75 05" + "e8 02 00 00 00" + pop + ret}, {"stop", "f4"}}, "0:sp+8 1:sp+16 9:sp+8 11:-"},
		{"call that does not return, at the end", []fn{{"f", "75 06" + push + "e8 01 00 00 00" + ret}, {"stop", "f4"}}, "0:sp+8 3:sp+16 8:sp+8 10:-"},
		{"moved out", []fn{{"f", push + "75 02" + pop + ret}, {"f.cold", "31 c0" + "eb fa"}}, "0:sp+8 1:sp+16 4:sp+8 5:sp+16 9:-"},
		{"vfork", []fn{{"f", "5a" + "0f 05" + "52" + ret}}, "0:sp+8 1:ra=r1,sp+0 4:sp+8 5:-"},
		{"return address overwritten", []fn{{"f", "59" + "0f 05" + "51" + ret}}, ""}, // by the system call
		{"clone", []fn{{"__clone", "0f 05" + "75 04" + "31 ed" + "5f f4" + ret}}, "0:sp+8 6:end 8:sp+8 9:-"},
		{"jumps only", []fn{{"f", "ff 65 00"}, {"g", "ff 23"}}, ""}, // Haskell
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := buildBytes(t, craftCode(c.fns...))
			rows := tab.Rows
			for len(rows) > 0 && rows[0].Rule().Type() == Gap {
				rows = rows[1:]
			}
			if got := show(rows); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
