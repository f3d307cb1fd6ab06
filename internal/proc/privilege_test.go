package proc

import "testing"

func TestAsRoot(t *testing.T) {
	if got := asRoot(false, ", or with CAP_X", "CAP_X"); got != "run as root, or with CAP_X" {
		t.Errorf("a user is told to %s", got)
	}
	if got, want := asRoot(true, ", or with CAP_X", "CAP_X"), "this root lacks CAP_X, as root of a container does, or a filter of system calls is in the way (\"atys doctor\" shows which)"; got != want {
		t.Errorf("root is told: %s", got)
	}
}
