package v8

import "atys.dev/atys/internal/lang"

// What a photograph holds, see photograph_v8 in v8.h: these values, and the
// texts of the function's name and the script's. One of compiled code holds
// only what its function is, and a pc.
const (
	valueShared = iota
	valueName
	valueScript
	valueIsScript // 0: the function is of V8's library, which has none
	valueStart
	_ // where it ends
	valueWhat
	valuePC
)

// place is a piece of compiled code: a function, and which 256 bytes.
type place struct{ what, block uint64 }

func placeOf(what, pc uint64) place { return place{what, pc >> 8} }

const (
	scriptText       = 512     // where the script's name begins
	twoBytes         = 1 << 31 // beside a text's length: its characters have two
	photographedName = 255     // characters of a name that are there at least
)

// photographed is a function as a walk saw it.
type photographed struct {
	function
	file string

	// What its process told of it; nil unknown.
	reused      bool // another function lies there now: samples may be of either
	lines       *script
	unoptimised *unoptimised
}

// develop reads a photograph.
func develop(p lang.Photograph) photographed {
	f := photographed{function: function{shared: p.Values[valueShared], nameAt: p.Values[valueName], script: p.Values[valueScript], start: -1}}
	f.name = photographedText(p, 0, 0, scriptText)
	f.known = f.name != "" // else it may be that its memory could not be read
	if p.Values[valueIsScript] == 0 {
		f.script, f.known = 0, true
		return f
	}
	f.file = fileName(photographedText(p, 1, scriptText, len(p.Bytes)))
	f.start = position(p.Values[valueStart])
	return f
}

func photographedText(p lang.Photograph, which, begin, end int) string {
	end = min(end, len(p.Bytes))
	n := int(p.Lengths[which] &^ twoBytes)
	if begin > end || n > end-begin {
		return ""
	}
	return chars{p.Bytes[begin : begin+n], p.Lengths[which]&twoBytes != 0}.String()
}
