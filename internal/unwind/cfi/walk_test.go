package cfi

import (
	"strings"
	"testing"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

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
		{"leaf", []fn{{"f", "31 c0" + ret}}, "0:rsp+8 3:gap"},
		{"pushes", []fn{{"f", push + sub24 + add24 + pop + ret}}, "0:rsp+8 1:rsp+16 5:rsp+40 9:rsp+16 10:rsp+8 11:gap"},
		{"frame", []fn{{"f", pushFrame + setFrame + "48 29 c4" + "c9" + ret}}, "0:rsp+8 1:rsp+16,c-16 7:rbp+16,c-16 8:rsp+8 9:gap"},
		{"rbp as a variable", []fn{{"f", pushFrame + "31 ed" + "5d" + ret}}, "0:rsp+8 1:rsp+16,c-16 4:rsp+8 5:gap"},
		{"rbp saved by mov", []fn{{"f", sub24 + "48 89 6c 24 10" + "31 ed" + "48 8b 6c 24 10" + add24 + ret}},
			"0:rsp+8 4:rsp+32 9:rsp+32,c-16 16:rsp+32 20:rsp+8 21:gap"},
		{"branch", []fn{{"f", push + "74 02" + "31 c0" + pop + ret}}, "0:rsp+8 1:rsp+16 6:rsp+8 7:gap"},
		{"branches that disagree", []fn{{"f", "74 01" + push + pop + ret}}, ""},
		{"returns with a frame", []fn{{"f", push + ret}}, ""},
		{"returns without the caller's rbp", []fn{{"f", "31 ed" + ret}}, ""},
		{"unknown rsp", []fn{{"f", "48 89 c4" + ret}}, ""},
		{"into an instruction", []fn{{"f", "74 ff" + ret}}, ""},
		{"no instruction", []fn{{"f", "06" + ret}}, ""},
		{"table of cases", []fn{{"f", push + "ff 24 c5 00 00 40 00" + "0f 1f 00" + "31 c0" + pop + ret + "31 c9" + pop + ret}},
			"0:rsp+8 1:rsp+16 14:rsp+8 15:rsp+16 18:rsp+8 19:gap"},
		{"code that nothing reaches", []fn{{"f", ret + "31 c0" + ret}}, "0:rsp+8 1:gap"},
		{"tail call", []fn{{"f", push + pop + "eb 00"}, {"g", ret}}, "0:rsp+8 1:rsp+16 2:rsp+8 5:gap"},
		{"tail call with a frame", []fn{{"f", push + "eb 00"}, {"g", ret}}, "3:rsp+8 4:gap"},
		{"call that does not return", []fn{{"f", push + "75 05" + "e8 02 00 00 00" + pop + ret}, {"stop", "f4"}}, "0:rsp+8 1:rsp+16 9:rsp+8 11:gap"},
		{"call that does not return, at the end", []fn{{"f", "75 06" + push + "e8 01 00 00 00" + ret}, {"stop", "f4"}}, "0:rsp+8 3:rsp+16 8:rsp+8 10:gap"},
		{"moved out", []fn{{"f", push + "75 02" + pop + ret}, {"f.cold", "31 c0" + "eb fa"}}, "0:rsp+8 1:rsp+16 4:rsp+8 5:rsp+16 9:gap"},
		{"vfork", []fn{{"f", "5a" + "0f 05" + "52" + ret}}, "0:rsp+8 1:rsp+0,ra=r1 4:rsp+8 5:gap"},
		{"return address overwritten", []fn{{"f", "59" + "0f 05" + "51" + ret}}, ""}, // by the system call
		{"clone", []fn{{"__clone", "0f 05" + "75 04" + "31 ed" + "5f f4" + ret}}, "0:rsp+8 6:end 8:rsp+8 9:gap"},
		{"clone that tests", []fn{{"__clone", "b8 38 00 00 00" + "b8 38 00 00 00" + "0f 05" + "85 c0" + "75 04" + "31 ed" + "5f f4" + ret}}, "0:rsp+8 10:fork 18:end 20:rsp+8 21:gap"},
		{"into the next", []fn{{"f", push + pop}, {"g", ret}}, "0:rsp+8 1:rsp+16 2:rsp+8 3:gap"},
		{"into nothing", []fn{{"f", "31 c0"}}, ""},
		{"jumps only", []fn{{"f", "ff 65 00"}, {"g", "ff 23"}}, ""}, // Haskell
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := buildBytes(t, craftCode(c.fns...))
			all := tab.Rows
			for len(all) > 0 && all[0].Rule().Type() == rows.Gap {
				all = all[1:]
			}
			var list []string
			for _, r := range all {
				list = append(list, rowText(r))
			}
			if got := strings.Join(list, " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
