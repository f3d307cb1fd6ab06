package spec

import "testing"

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1B": 1, "2kB": 2e3, "2KB": 2e3, "2KiB": 2 << 10, "256MB": 256e6, "256MiB": 256 << 20, " 1.5 GiB ": 3 << 29, "50GB": 50e9, "2TB": 2e12, "2TiB": 2 << 40,
		"": -1, "0x": -1, "5": -1, "MB": -1, "-1MB": -1, "NaNMB": -1, "InfGB": -1, "1e30GB": -1, "10EB": -1, "1 gb": -1,
	} {
		got, err := ParseBytes(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
}
