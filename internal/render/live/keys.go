package live

import "unicode/utf8"

// Key is what was pressed: a character, or one of the names below.
type Key string

const (
	KeyUp        Key = "up"
	KeyDown      Key = "down"
	KeyPageUp    Key = "page up"
	KeyPageDown  Key = "page down"
	KeyHome      Key = "home"
	KeyEnd       Key = "end"
	KeyEscape    Key = "escape"
	KeyEnter     Key = "enter"
	KeyBackspace Key = "backspace"
	KeyInterrupt Key = "interrupt" // Ctrl-C
	KeyWheelUp   Key = "wheel up"
	KeyWheelDown Key = "wheel down"
)

// maxSequence bounds what is kept of an escape sequence that does not end.
const maxSequence = 32

// parseKeys reads what a terminal sent. The rest is the beginning of a
// sequence whose end has not arrived; idle tells that nothing more came for a
// while, so that a lone escape is the key.
func parseKeys(in []byte, idle bool) (keys []Key, rest []byte) {
	for len(in) > 0 {
		if in[0] == 0x1b {
			key, n := parseEscape(in)
			switch {
			case n == 0 && idle || len(in) > maxSequence && n == 0:
				key, n = KeyEscape, 1
			case n == 0:
				return keys, in
			}
			if key != "" {
				keys = append(keys, key)
			}
			in = in[n:]
			continue
		}
		r, n := utf8.DecodeRune(in)
		if r == utf8.RuneError && n == 1 && !utf8.FullRune(in) && !idle {
			return keys, in
		}
		if key := plainKey(r, n); key != "" {
			keys = append(keys, key)
		}
		in = in[n:]
	}
	return keys, nil
}

func plainKey(r rune, n int) Key {
	switch {
	case r == 3:
		return KeyInterrupt
	case r == '\r' || r == '\n':
		return KeyEnter
	case r == 0x7f || r == 8:
		return KeyBackspace
	case r < 0x20 || r == utf8.RuneError && n == 1:
		return ""
	}
	return Key(string(r))
}

// parseEscape reads one sequence: CSI ("\x1b[", parameters, a final byte) or
// SS3 ("\x1bO" and a byte). n is 0 where it is not complete; a sequence that
// means nothing to us gives no key.
func parseEscape(in []byte) (key Key, n int) {
	if len(in) < 2 {
		return "", 0
	}
	if in[1] == 'O' {
		if len(in) < 3 {
			return "", 0
		}
		return finalKey(in[2], ""), 3
	}
	if in[1] != '[' {
		return KeyEscape, 1
	}
	for i := 2; i < len(in) && i < maxSequence; i++ {
		if in[i] >= 0x40 && in[i] <= 0x7e {
			return finalKey(in[i], string(in[2:i])), i + 1
		}
	}
	return "", 0
}

// finalKey tells what a sequence with these parameters and this end means; of
// the mouse (SGR reports: <button;column;row) only the wheel matters.
func finalKey(final byte, parameters string) Key {
	switch final {
	case 'A':
		return KeyUp
	case 'B':
		return KeyDown
	case 'H':
		return KeyHome
	case 'F':
		return KeyEnd
	case '~':
		return map[string]Key{"5": KeyPageUp, "6": KeyPageDown, "1": KeyHome, "7": KeyHome, "4": KeyEnd, "8": KeyEnd}[parameters]
	case 'M':
		if len(parameters) > 3 && parameters[:3] == "<64" {
			return KeyWheelUp
		}
		if len(parameters) > 3 && parameters[:3] == "<65" {
			return KeyWheelDown
		}
	}
	return ""
}
