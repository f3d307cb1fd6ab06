package live

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/test/testwait"
)

// pair opens a pseudo-terminal: what a user sees and types, and what we get.
func pair(t *testing.T) (user, ours *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { user.Close() })
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	ours, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	return user, ours
}

func TestTerminal(t *testing.T) {
	user, ours := pair(t)
	if err := unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 40}); err != nil {
		t.Fatal(err)
	}
	before, err := unix.IoctlGetTermios(int(ours.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	term, err := Open(ours, ours)
	if err != nil {
		t.Fatal(err)
	}
	if width, height := term.Size(); width != 40 || height != 10 {
		t.Errorf("size %d by %d", width, height)
	}
	if _, err := user.WriteString("q\x1b[A\x1b"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []Key{"q", KeyUp, KeyEscape} {
		select {
		case k := <-term.Keys():
			if k != want {
				t.Errorf("key %q, want %q", k, want)
			}
		case <-time.After(testwait.Longest(t)):
			t.Fatalf("key %q does not arrive", want)
		}
	}
	if err := term.Draw([]string{"first", "second"}); err != nil {
		t.Fatal(err)
	}
	if err := term.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := unix.IoctlGetTermios(int(ours.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if *after != *before {
		t.Errorf("the terminal is left as %+v, it was %+v", after, before)
	}
	var seen []byte
	for buffer := make([]byte, 4096); !strings.Contains(string(seen), "\x1b[?1049l"); { // the last thing written
		n, err := user.Read(buffer)
		if err != nil {
			t.Fatalf("%v, after %q", err, seen)
		}
		seen = append(seen, buffer[:n]...)
	}
	for _, want := range []string{"\x1b[?1049h", "first\x1b[K", "\nsecond", "\x1b[?1049l"} {
		if !strings.Contains(string(seen), want) {
			t.Errorf("%q is missing from what the user sees: %q", want, seen)
		}
	}
}

// TestTerminalGone: when the user hangs up, keys end.
func TestTerminalGone(t *testing.T) {
	user, ours := pair(t)
	term, err := Open(ours, ours)
	if err != nil {
		t.Fatal(err)
	}
	user.Close()
	select {
	case _, ok := <-term.Keys():
		if ok {
			t.Error("a key from nobody")
		}
	case <-time.After(testwait.Longest(t)):
		t.Error("keys do not end")
	}
	term.Close() // writing to a terminal that is gone fails, and that is fine
}
