package lang

import "testing"

func TestName(t *testing.T) {
	tests := []struct {
		runtime Runtime
		want    string
	}{
		{Runtime{Kind: HotSpot, Vendor: "Debian", Version: "17.0.15", Update: "17.0.15+6"}, "java 17.0.15 (Debian)"},
		{Runtime{Kind: HotSpot}, "java"},
		{Runtime{Kind: Node, Vendor: "Node.js", Version: "20.1.0"}, "node 20.1.0"},
		{Runtime{Kind: Node, Vendor: "Electron", Version: "20.9.0"}, "electron (node 20.9.0)"},
		{Runtime{Kind: Python, Vendor: "PyPy", Version: "3.9"}, "pypy 3.9"},
		{Runtime{Kind: PHP, Vendor: "PHP", Version: "8.2.1", Feature: "opcache JIT"}, "php 8.2.1 (opcache JIT)"},
		{Runtime{Kind: Native}, "native"},
		{Runtime{Kind: Native, Vendor: "C++"}, "c++"},
	}
	for _, test := range tests {
		if got := test.runtime.Name(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.runtime, got, test.want)
		}
	}
}
