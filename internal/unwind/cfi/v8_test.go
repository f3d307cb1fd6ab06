package cfi

import (
	"strings"
	"testing"
)

// TestBuiltins has a builtin that calls, drops its arguments and returns; a
// bytecode handler without a frame; one with a frame, that leaves it behind a
// call; one that moves the return address down, or not, and jumps on; one that
// switches stacks, or not; and one that does.
func TestBuiltins(t *testing.T) {
	const call = "e8 00 00 00 00"
	tab := buildBytes(t, craftCode(
		fn{"v8_Default_embedded_blob_code_", "55 48 89 e5" + call + "c9 59 48 8d 24 cc 51 c3" + "cc"},
		fn{"Builtins_LdarHandler", "31 c0 ff e1"},
		fn{"Builtins_CallHandler", "55 48 89 e5 6a 22 48 83 ec 08" + call + "48 8b 6d 00 48 83 c4 18 ff e1"},
		fn{"Builtins_Call", "7e 05 49 2b e2 31 c0 ff e1"},
		fn{"Builtins_Switch", "7e 04 48 8b 60 60 31 c0 c3"},
		fn{"Builtins_Deoptimize", "48 8b 60 60 c3"},
		fn{"v8_Default_embedded_blob_code_size_", "46 00 00 00"},
	))
	var list []string
	for _, r := range tab.Rows {
		list = append(list, rowText(r))
	}
	want := "0:rsp+8 1:rsp+16,c-16 4:fp 10:rsp+8 11:rsp+0,ra=r2 16:rsp+8 23:rsp+16,c-16 26:fp 41:rsp+32 45:rsp+8 52:fp 54:rsp+8 62:fp 65:rsp+8 69:fp 70:gap"
	if got := strings.Join(list, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
